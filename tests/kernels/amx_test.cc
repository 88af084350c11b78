// SPDX-License-Identifier: Apache-2.0
// Products on AMX tiles without a processor that has them. Linked twice: with kernels on tiles in
// software in place of the library's (software_tiles.cc), and with the library's, whose tile
// instructions are done in software where the processor does not know them (trapped_tiles.cc).
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/cpu/amx_check.h"
#include "kernels/cpu/bf16_rows.h"
#include "kernels/ops.h"
#include "tests/kernels/reference.h"
#include "tests/kernels/software_tiles.h"
#include "tests/kernels/streams.h"

namespace cohort {
namespace {

using reference::Weights;

// The kernels' other instructions are of AVX-512.
#define NEEDS_AVX512() \
  if (!supported(Isa::avx512)) GTEST_SKIP() << "NOT TESTED: this processor has no avx512"

std::vector<float> product(Stream& stream, const std::vector<float>& x, int64_t rows,
                           const Matrix& w, ActivationMode mode,
                           const std::vector<UnitRange>& pieces) {
  Activations activations(stream, rows, w.columns(), mode);
  ops::prepare(stream, activations, Tensor(x.data(), DType::f32, {rows, w.columns()}));
  std::vector<float> y(pieces.size() * size_t(rows * w.rows()), -7.0f);
  ops::matmul(stream, Tensor(y.data(), DType::f32, {int64_t(pieces.size()), rows, w.rows()}),
              activations, w, pieces);
  return y;
}

// Rows with what products must keep to themselves, and a block that counts as zero.
std::vector<float> rows_with_extremes(int64_t rows, int64_t columns, std::mt19937& random) {
  std::vector<float> x = reference::random_floats(rows * columns, random);
  x[size_t(rows / 2 * columns + 5)] = std::numeric_limits<float>::infinity();
  x[size_t(rows / 3 * columns + 40)] = std::numeric_limits<float>::quiet_NaN();
  for (int i = 0; i < 32; i++) x[size_t((rows - 1) * columns + i)] = 0x1p-120f;
  return x;
}

class AmxOfType : public testing::TestWithParam<DType> {
 protected:
  static ActivationMode mode() {
    return GetParam() == DType::bf16 ? ActivationMode::bf16 : ActivationMode::int8;
  }
  void expect_portable_bits(const std::vector<float>& x, int64_t rows, const Matrix& w,
                            const std::vector<UnitRange>& pieces) {
    const auto expected = product(plain_, x, rows, w, mode(), pieces);
    for (Stream* stream : {&alone_, &shared_})
      ASSERT_TRUE(same_bits(product(*stream, x, rows, w, mode(), pieces), expected))
          << rows << " rows, " << w.columns() << " columns, " << stream->threads().size()
          << " threads";
  }
  // The test was one of tiles, unless the type is not for them. (Two streams' trials of bf16 take
  // 768 of them.) Asking for support lets a processor's own tiles be used.
  const bool hardware_ = supported(Isa::amx);
  void TearDown() override {
    if (IsSkipped() || GetParam() == DType::f32 || GetParam() == DType::f16) return;
    if (hardware_ && software_tile_products() == 0) return;
    EXPECT_GT(software_tile_products(), products_before_ + (is_quantized(GetParam()) ? 300 : 1000));
  }

  Stream plain_{1, Isa::portable}, alone_{1, Isa::amx}, shared_{3, Isa::amx};
  const int64_t products_before_ = software_tile_products();
};

// Row tiles that are full, have a row, or lack one; fewer than are worth tiles; more than a strip.
TEST_P(AmxOfType, E11_HasThePortableBitsForAnyRows) {
  NEEDS_AVX512();
  std::mt19937 random(1);
  const int64_t columns = 256;
  const Weights w = reference::random_weights(GetParam(), 37, columns, random);
  const Matrix matrix = reference::pack(plain_, 0, {&w});
  for (int64_t rows : {1, 7, 8, 16, 17, 31, 32, 33, 47, 63, 130})
    expect_portable_bits(rows_with_extremes(rows, columns, random), rows, matrix, {{0, 1}});
  const int64_t many = 16 * 16 + 5;
  expect_portable_bits(rows_with_extremes(many, columns, random), many, matrix, {{0, 1}});
}

// Chunks of columns that are full or not, units within, across and as long as chunks, pieces, and
// parts of two types with outputs that do not fill a panel.
TEST_P(AmxOfType, E11_HasThePortableBitsForAnyUnitsAndPieces) {
  NEEDS_AVX512();
  std::mt19937 random(2);
  const int64_t rows = 50;
  const bool super_blocks = info(GetParam()).block_elements == 256;
  for (int64_t unit : {0, 256, 768}) {
    const int64_t columns = 1536;
    const Weights a = reference::random_weights(GetParam(), 53, columns, random);
    const Weights b = reference::random_weights(DType::q8_0, 3, columns, random);
    const Matrix matrix = reference::pack(plain_, unit, {&a, &b});
    const auto x = rows_with_extremes(rows, columns, random);
    expect_portable_bits(x, rows, matrix, {{0, matrix.units()}});
    if (unit == 256) expect_portable_bits(x, rows, matrix, {{0, 4}, {4, 6}});
  }
  if (super_blocks) return;
  for (int64_t unit : {32, 96}) {
    const int64_t columns = unit * 9;
    const Weights a = reference::random_weights(GetParam(), 16, columns, random);
    expect_portable_bits(rows_with_extremes(rows, columns, random), rows,
                         reference::pack(plain_, unit, {&a}), {{0, 8}, {8, 9}});
  }
}

// Groups that begin within a tile of rows, and ones too small for tiles.
TEST_P(AmxOfType, E11_HasThePortableBitsInGroups) {
  NEEDS_AVX512();
  std::mt19937 random(3);
  const int64_t columns = 256, n = 37;
  const std::vector<int32_t> offsets = {0, 3, 40, 40, 105, 148, 160};
  const int64_t rows = offsets.back();
  const auto x = rows_with_extremes(rows, columns, random);
  std::vector<Weights> weights;
  for (size_t g = 0; g + 1 < offsets.size(); g++)
    weights.push_back(reference::random_weights(GetParam(), n, columns, random));
  const auto grouped = [&](Stream& stream) {
    MatrixGroup group;
    for (const Weights& w : weights) group.matrices.push_back(reference::pack(stream, 0, {&w}));
    Activations scratch(stream, rows, columns, mode());
    std::vector<float> y(size_t(rows * n), -7.0f);
    ops::grouped_matmul(stream, Tensor(y.data(), DType::f32, {rows, n}),
                        Tensor(x.data(), DType::f32, {rows, columns}), group,
                        Tensor(offsets.data(), DType::i32, {int64_t(offsets.size())}), scratch);
    return y;
  };
  const auto expected = grouped(plain_);
  EXPECT_TRUE(same_bits(grouped(alone_), expected));
  EXPECT_TRUE(same_bits(grouped(shared_), expected));
}

std::string type_name(const testing::TestParamInfo<DType>& info) {
  return std::string(name(info.param));
}
INSTANTIATE_TEST_SUITE_P(All, AmxOfType, testing::ValuesIn(reference::weight_types()), type_name);

// 32 products of -128 and 127 are as large as sums get.
TEST(Amx, TheLargestSumsAreExact) {
  NEEDS_AVX512();
  Stream plain(1, Isa::portable);
  const int64_t rows = 32, columns = 64, n = 16;
  std::mt19937 random(4);
  Weights w = reference::random_weights(DType::q8_0, n, columns, random);
  for (size_t block = 0; block < w.stored.size(); block += 34)
    std::memset(w.stored.data() + block + 2, 0x80, 32);
  const std::vector<float> x(size_t(rows * columns), 127.0f);
  const Matrix matrix = reference::pack(plain, 0, {&w});
  Stream tiles(1, Isa::amx);
  EXPECT_TRUE(same_bits(product(tiles, x, rows, matrix, ActivationMode::int8, {{0, 1}}),
                        product(plain, x, rows, matrix, ActivationMode::int8, {{0, 1}})));
}

// What decides at start whether bf16 weights use tiles.
TEST(AmxCheck, AcceptsTheSpecifiedSumsAlone) {
  NEEDS_AVX512();
  EXPECT_TRUE(sums_as_specified(matmul_bf16_portable));
  EXPECT_TRUE(sums_as_specified(matmul_bf16_avx512));
  EXPECT_TRUE(sums_as_specified(matmul_bf16_amx));
  EXPECT_FALSE(sums_as_specified(bf16_pair_by_pair));
  EXPECT_FALSE(sums_as_specified(bf16_with_denormals));
}

// Where the trial failed, and where a unit ends within a block of columns.
TEST(AmxCheck, OtherwiseBf16WeightsUseVectors) {
  NEEDS_AVX512();
  const int64_t rows = 40, columns = 96, n = 16;
  std::mt19937 random(6);
  Stream plain(1, Isa::portable);
  const Weights w = reference::random_weights(DType::bf16, n, columns, random);
  const auto x = reference::random_floats(rows * columns, random);
  for (int64_t unit : {96, 48}) {
    const Matrix matrix = reference::pack(plain, unit, {&w});
    Activations activations(plain, rows, columns, ActivationMode::bf16);
    ops::prepare(plain, activations, Tensor(x.data(), DType::f32, {rows, columns}));
    std::vector<float> y(size_t(rows * n));
    MatmulJob job{};
    job.type = DType::bf16;
    job.packed = matrix.parts()[0].packed.data();
    job.panel_bytes = matrix.packed_bytes();
    job.n = job.stride = n;
    job.columns = job.end = columns;
    job.unit_columns = unit;
    job.rows = rows;
    job.y = y.data();
    job.bf16 = bf16_rows(activations.storage().data(), rows, columns);
    job.bf16_tiles = unit % 32 != 0;
    const int64_t before = software_tile_products();
    matmul_bf16_amx(job, 0, 1);
    EXPECT_EQ(software_tile_products(), before);
    EXPECT_TRUE(
        same_bits(y, product(plain, x, rows, matrix, ActivationMode::bf16, {{0, matrix.units()}})));
  }
}

// The software's rule for results about to become denormal is the one of a processor.
TEST(SoftwareTiles, FlushAsTheProcessorsFmaDoes) {
  NEEDS_AVX512();
  std::mt19937 random(5);
  const auto value = [&](int lowest, int exponents, uint32_t fraction_mask) {
    const uint32_t exponent = uint32_t(127 + lowest + int(random() % uint32_t(exponents)));
    return float_of((random() & 0x80000000u) | exponent << 23 | (random() & fraction_mask));
  };
  constexpr uint32_t kBf16 = 0x7f0000, kF32 = 0x7fffff;
  int tiny = 0;
  for (int i = 0; i < 1000000; i++) {
    const float a = value(-80, 24, kBf16), b = value(-70, 10, kBf16);
    const float c = i % 3 == 0   ? value(-126, 3, i % 2 ? kF32 : 0)
                    : i % 3 == 1 ? value(-126, 30, kF32)
                                 : 0;
    const float got = flushed_fma(a, b, c), expected = processor_flushed_fma(a, b, c);
    ASSERT_EQ(bits_of(got), bits_of(expected)) << a << " * " << b << " + " << c;
    tiny += got == 0;
  }
  EXPECT_GT(tiny, 10000);
  // Rounded to 24 bits it stays below 2^-126, though the nearest denormal or normal is that.
  EXPECT_EQ(flushed_fma(-0x1p-75f, 0x1p-75f, 0x1p-126f), 0);
  EXPECT_EQ(flushed_fma(-0x1p-75f, 0x1p-76f, 0x1p-126f), 0x1p-126f);
}

}  // namespace
}  // namespace cohort
