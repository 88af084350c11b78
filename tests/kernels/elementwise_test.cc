// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/half.h"
#include "kernels/cpu/bf16_rows.h"
#include "kernels/cpu/exp2.h"
#include "kernels/cpu/isa_table.h"
#include "kernels/ops.h"
#include "tests/kernels/reference.h"
#include "tests/kernels/streams.h"

namespace cohort {
namespace {

Tensor matrix(std::vector<float>& v, int64_t rows) {
  return Tensor(v.data(), DType::f32, {rows, int64_t(v.size()) / rows});
}

Tensor row_errors(std::vector<int32_t>& v) {
  return Tensor(v.data(), DType::i32, {int64_t(v.size())});
}

TEST(RmsNorm, IsCloseToDoublePrecisionAndEqualForAnyThreads) {
  std::mt19937 random(1);
  for (int64_t n : {1, 15, 16, 17, 576, 5000}) {
    const int64_t rows = 9;
    std::vector<float> x = reference::random_floats(rows * n, random, 3);
    std::vector<float> weight = reference::random_floats(n, random), first;
    for (int threads : {1, 2, 3}) {
      Stream stream(threads, detect_isa());
      std::vector<float> out(x.size());
      ops::rms_norm(stream, matrix(out, rows), matrix(x, rows),
                    Tensor(weight.data(), DType::f32, {n}), 1e-5f);
      if (first.empty()) first = out;
      EXPECT_TRUE(same_bits(out, first));
    }
    for (int64_t r = 0; r < rows; r++) {
      const auto expected =
          reference::rms_norm({x.data() + r * n, size_t(n)}, weight, double(1e-5f));
      for (int64_t i = 0; i < n; i++) {
        const double e = expected[size_t(i)];
        EXPECT_NEAR(first[size_t(r * n + i)], e, reference::kElementwise * std::fabs(e));
      }
    }
    Stream stream(1, Isa::portable);
    ops::rms_norm(stream, matrix(x, rows), matrix(x, rows), Tensor(weight.data(), DType::f32, {n}),
                  1e-5f);  // in place
    EXPECT_TRUE(same_bits(x, first));
  }
}

TEST(SiluMul, IsCloseToDoublePrecisionAndEqualForAnyIsa) {
  std::mt19937 random(2);
  const int64_t rows = 40, n = 613;
  std::vector<float> gate_up = reference::random_floats(rows * 2 * n, random, 6), first;
  for (Isa isa : isas())
    for (int threads : {1, 3}) {
      Stream stream(threads, isa);
      std::vector<float> out(size_t(rows * n));
      ops::silu_mul(stream, matrix(out, rows), matrix(gate_up, rows));
      if (first.empty()) first = out;
      EXPECT_TRUE(same_bits(out, first)) << name(isa);
    }
  for (int64_t i = 0; i < rows * n; i++) {
    const size_t gate = size_t(i / n * 2 * n + i % n);
    const double up = double(gate_up[gate + size_t(n)]);
    // The error of e^-x grows with its exponent: |x| 2^-24 relative.
    const double relative = reference::kElementwise * (1 + std::fabs(double(gate_up[gate])));
    const double expected = reference::silu(double(gate_up[gate])) * up;
    EXPECT_NEAR(first[size_t(i)], expected, relative * std::fabs(expected));
  }
}

TEST(SiluMul, LargeAndInvalidInputs) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (Isa isa : isas()) {
    Stream stream(1, isa);
    std::vector<float> gate_up(32, 1.0f), out(16);
    gate_up[0] = 1e30f;
    gate_up[1] = -1e30f;
    gate_up[2] = std::numeric_limits<float>::quiet_NaN();
    gate_up[3] = kInfinity;
    gate_up[4] = -0.0f;
    ops::silu_mul(stream, matrix(out, 1), matrix(gate_up, 1));
    EXPECT_EQ(out[0], 1e30f);
    EXPECT_EQ(out[1], 0);
    EXPECT_TRUE(std::isnan(out[2]));
    EXPECT_EQ(out[3], kInfinity);
    EXPECT_EQ(out[4], 0);
  }
}

TEST(Exp2, IsAccurateAndExactAtZero) {
  EXPECT_EQ(exp2_not_positive(0), 1);
  EXPECT_EQ(exp2_not_positive(-64.001f), 0);
  for (float x = -64; x <= 0; x += 0.00137f) {
    const double expected = std::exp2(double(x));
    EXPECT_NEAR(double(exp2_not_positive(x)), expected, 8.1e-8 * expected) << x;
  }
}

TEST(AddResidual, AddsAndMarksForAnyThreads) {
  std::mt19937 random(3);
  for (int threads : {1, 2, 3}) {
    Stream stream(threads, detect_isa());
    std::vector<float> x = reference::random_floats(20001, random), y = x;
    const std::vector<float> before = x;
    for (float& v : y) v *= 0.3f;
    x[9] = std::numeric_limits<float>::infinity();
    std::vector<int32_t> errors = {-1, 7, -1};
    ops::add_residual(stream, matrix(x, 3), matrix(y, 3), row_errors(errors), 4);
    EXPECT_EQ(errors, (std::vector<int32_t>{4, 7, -1}));
    for (size_t i = 10; i < x.size(); i++) ASSERT_EQ(x[i], before[i] + y[i]);
  }
}

TEST(AddRmsNorm, IsTheSumAndThenTheNorm) {
  std::mt19937 random(4);
  const int64_t rows = 3, n = 200;
  Stream stream(2, Isa::portable);
  std::vector<float> x = reference::random_floats(rows * n, random), sum = x, y = x, out(x.size());
  const std::vector<float> weight = reference::random_floats(n, random);
  for (size_t i = 0; i < y.size(); i++) sum[i] += y[i] = 0.4f * x[x.size() - 1 - i];
  std::vector<int32_t> errors(rows, -1);
  const Tensor w(weight.data(), DType::f32, {n});
  ops::add_rms_norm(stream, matrix(out, rows), matrix(x, rows), matrix(y, rows), w, 1e-5f,
                    row_errors(errors), 4);
  EXPECT_EQ(x, sum);
  for (int64_t r = 0; r < rows; r++) {
    const auto expected =
        reference::rms_norm(std::span(sum).subspan(size_t(r * n), n), weight, 1e-5);
    for (int64_t i = 0; i < n; i++)
      ASSERT_NEAR(out[size_t(r * n + i)], expected[size_t(i)],
                  reference::kElementwise * std::abs(expected[size_t(i)]));
  }
}

// What products read of rows that have been prepared: x itself, and the rows in bf16 and in int8 as
// they lie in Activations::storage().
std::vector<float> held(const Activations& a) {
  const int64_t rows = a.x().dim(0), columns = a.x().dim(1);
  std::vector<float> all(a.x().f32(), a.x().f32() + rows * columns);
  auto* const storage = const_cast<std::byte*>(a.storage().data());
  if (a.mode() == ActivationMode::bf16) {
    const Bf16Rows b = bf16_rows(storage, rows, columns);
    for (int64_t r = 0; r < rows; r++) {
      all.insert(all.end(), b.wide + r * b.stride, b.wide + r * b.stride + columns);
      for (int64_t i = 0; i < columns; i++)
        all.push_back(bf16_to_float(b.narrow[r * b.stride + i]));
    }
  }
  if (a.mode() == ActivationMode::f32 || columns % 32 != 0) return all;
  const auto q = quantized_rows(storage, rows, columns);
  for (int64_t r = 0; r < rows; r++)
    for (int64_t b = 0; b < q.blocks; b++) {
      const QuantizedBlocks block = quantized_blocks(q, r, b);
      all.insert(all.end(), block.q, block.q + 32);
      all.insert(all.end(), {*block.d, *block.s, float(*block.sum)});
    }
  return all;
}

struct NormCase {
  int64_t rows, n;
  std::vector<float> x, y, weight;
  std::vector<int32_t> errors;
  NormCase(int64_t some_rows, int64_t width, std::mt19937& random)
      : rows(some_rows),
        n(width),
        x(reference::random_floats(rows * n, random, 3)),
        y(reference::random_floats(rows * n, random)),
        weight(reference::random_floats(n, random)),
        errors(size_t(rows), -1) {
    x[size_t((rows - 1) * n)] = std::numeric_limits<float>::quiet_NaN();
    y[size_t(rows / 2 * n + n - 1)] = -std::numeric_limits<float>::infinity();
    errors.back() = 5;
  }
};

struct Normed {
  std::vector<float> h, x, prepared;
  std::vector<int32_t> errors;
};

Normed run_norm(const NormCase& c, Isa isa, int threads, ActivationMode mode, bool fused) {
  Stream stream(threads, isa);
  Activations prepared(stream, c.rows, c.n, mode);
  std::vector<float> x = c.x, y = c.y, h(x.size());
  std::vector<int32_t> errors = c.errors;
  const Tensor w(c.weight.data(), DType::f32, {c.n});
  const Tensor to = matrix(h, c.rows), in = matrix(x, c.rows), more = matrix(y, c.rows);
  if (fused) {
    ops::add_rms_norm_prepare(stream, prepared, to, in, more, w, 1e-5f, row_errors(errors), 4);
  } else {
    ops::add_rms_norm(stream, to, in, more, w, 1e-5f, row_errors(errors), 4);
    ops::prepare(stream, prepared, to);
  }
  return {h, x, held(prepared), errors};
}

constexpr ActivationMode kModes[] = {ActivationMode::int8, ActivationMode::f32,
                                     ActivationMode::bf16};

TEST(Fused, AddRmsNormPrepareEqualsItsParts) {
  std::mt19937 random(5);
  for (const auto& [rows, n] : {std::pair<int64_t, int64_t>{1, 1},
                                {2, 15},
                                {3, 32},
                                {1, 576},
                                {17, 608},
                                {40, 1000},
                                {33, 2048}}) {
    const NormCase c(rows, n, random);
    for (ActivationMode mode : kModes) {
      const Normed parts = run_norm(c, Isa::portable, 1, mode, false);
      EXPECT_EQ(parts.errors.back(), 5);
      EXPECT_EQ(parts.errors[size_t(rows / 2)], rows / 2 + 1 == rows ? 5 : 4);
      for (Isa isa : isas())
        for (int threads : {1, 3}) {
          SCOPED_TRACE(concat(name(isa), ", ", threads, " threads, ", rows, " x ", n));
          const Normed all = run_norm(c, isa, threads, mode, true);
          EXPECT_TRUE(same_bits(all.h, parts.h));
          EXPECT_TRUE(same_bits(all.x, parts.x));
          EXPECT_TRUE(same_bits(all.prepared, parts.prepared));
          EXPECT_EQ(all.errors, parts.errors);
        }
    }
  }
}

TEST(Fused, RmsNormPrepareAndSiluMulPrepareEqualTheirParts) {
  std::mt19937 random(6);
  for (const auto& [rows, n] :
       {std::pair<int64_t, int64_t>{1, 33}, {1, 96}, {9, 1536}, {40, 608}, {5, 3001}}) {
    std::vector<float> x = reference::random_floats(rows * n, random, 3);
    std::vector<float> gate_up = reference::random_floats(rows * 2 * n, random, 4);
    const std::vector<float> weight = reference::random_floats(n, random);
    const Tensor w(weight.data(), DType::f32, {n});
    x[size_t(n - 1)] = gate_up[0] = std::numeric_limits<float>::quiet_NaN();
    for (ActivationMode mode : kModes) {
      Stream portable(1, Isa::portable);
      Activations normed(portable, rows, n, mode), gated(portable, rows, n, mode);
      std::vector<float> h(x.size()), act(x.size());
      ops::rms_norm(portable, matrix(h, rows), matrix(x, rows), w, 1e-5f);
      ops::prepare(portable, normed, matrix(h, rows));
      ops::silu_mul(portable, matrix(act, rows), matrix(gate_up, rows));
      ops::prepare(portable, gated, matrix(act, rows));
      for (Isa isa : isas())
        for (int threads : {1, 3}) {
          SCOPED_TRACE(concat(name(isa), ", ", threads, " threads, ", rows, " x ", n));
          Stream stream(threads, isa);
          Activations prepared(stream, rows, n, mode);
          std::vector<float> out(x.size());
          ops::rms_norm_prepare(stream, prepared, matrix(out, rows), matrix(x, rows), w, 1e-5f);
          EXPECT_TRUE(same_bits(held(prepared), held(normed)));
          ops::silu_mul_prepare(stream, prepared, matrix(out, rows), matrix(gate_up, rows));
          EXPECT_TRUE(same_bits(held(prepared), held(gated)));
        }
    }
  }
}

TEST(Prepare, IsInt8WithinHalfAStepAndEqualForAnyIsa) {
  std::mt19937 random(7);
  constexpr int64_t kRows = 19, kColumns = 96;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<float> x = reference::random_floats(kRows * kColumns, random, 2);
  std::fill_n(x.begin(), 32, -0.0f);
  std::fill_n(x.begin() + 32, 32, 0x1p-101f);                                   // counts as zero
  for (int64_t i = 0; i < 32; i++) x[size_t(64 + i)] = (float(i) - 15.5f) * 2;  // halves of 127/31
  x[size_t(kColumns)] = kInfinity;
  x[size_t(kColumns + 32 + 7)] = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> first;
  for (Isa isa : isas()) {
    Stream stream(2, isa);
    Activations a(stream, kRows, kColumns, ActivationMode::int8);
    ops::prepare(stream, a, matrix(x, kRows));
    if (first.empty()) first = held(a);
    EXPECT_TRUE(same_bits(held(a), first)) << name(isa);
  }
  const float* block = first.data() + kRows * kColumns;
  for (size_t i = 0; i < x.size(); i += 32, block += 35) {
    float largest = 0;
    for (size_t j = i; j < i + 32 && std::isfinite(largest); j++)
      largest = std::abs(x[j]) <= largest ? largest : std::abs(x[j]);
    const float d = block[32], s = block[33], sum = block[34];
    if (!std::isfinite(largest)) {
      EXPECT_TRUE(std::isnan(d) && std::isnan(s));
      EXPECT_EQ(sum, 0);
      continue;
    }
    EXPECT_NEAR(d, largest < 0x1p-100f ? 0 : largest / 127, 1e-7 * largest);
    double integers = 0;
    for (size_t j = 0; j < 32; j++) {
      EXPECT_NEAR(double(block[j]) * d, x[i + j], 0.50001 * d + 0x1p-100) << i + j;
      integers += block[j];
    }
    EXPECT_EQ(sum, integers);
    EXPECT_NEAR(s, integers * d, 1e-6 * std::abs(integers * d));
  }
}

TEST(Rows, EveryIsaEqualsThePortableOne) {
  std::mt19937 random(8);
  for (Isa isa : isas())
    for (int64_t n : {1, 7, 15, 16, 17, 31, 100, 255, 256, 257, 500, 576, 1025}) {
      const RowKernels &kernels = cpu_kernels(isa).rows, &portable = kRowsPortable;
      std::vector<float> x = reference::random_floats(n, random, 2);
      x[size_t(n / 2)] = -0.0f;
      const std::vector<float> y = reference::random_floats(n, random);
      for (float special : {1.0f, std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN()}) {
        SCOPED_TRACE(concat(name(isa), " ", n, " ", special));
        x[size_t(n - 1)] = special;
        std::vector<float> a = x, b = x;
        const RowSums got = kernels.add(a.data(), y.data(), n);
        const RowSums expected = portable.add(b.data(), y.data(), n);
        EXPECT_TRUE(same_bits(a, b));
        EXPECT_TRUE(same_bits({got.squares}, {expected.squares}));
        EXPECT_EQ(finite(got), finite(expected));
        EXPECT_EQ(finite(got), special == 1);
        EXPECT_TRUE(same_bits({kernels.measure(a.data(), n).squares}, {expected.squares}));
        const auto blocks = size_t((n + kVocabBlock - 1) / kVocabBlock);
        std::vector<float> most(blocks * kVocabLanes), all = most;
        EXPECT_EQ(kernels.lane_maxima(most.data(), x.data(), n), special != special);
        EXPECT_EQ(portable.lane_maxima(all.data(), x.data(), n), special != special);
        EXPECT_TRUE(same_bits(most, all));
        std::vector<double> sums(blocks), right(blocks);
        kernels.block_sums(sums.data(), y.data(), n);
        portable.block_sums(right.data(), y.data(), n);
        EXPECT_EQ(sums, right);
      }
    }
}

TEST(Interleave, PutsBlocksSideBySide) {
  Stream stream(2, Isa::portable);
  const std::vector<float> gathered = {1, 2, 3, 4, 10, 20};  // [2][2], then [2][1]
  std::vector<float> out(6);
  const int64_t widths[] = {2, 1};
  ops::interleave(stream, matrix(out, 2), Tensor(gathered.data(), DType::f32, {6}), widths);
  EXPECT_EQ(out, (std::vector<float>{1, 2, 10, 3, 4, 20}));
}

TEST(GatherRows, CopiesRowsInOrder) {
  Stream stream(2, Isa::portable);
  std::vector<float> x(4 * 3), out(2 * 3);
  for (size_t i = 0; i < x.size(); i++) x[i] = float(i);
  const int32_t rows[] = {3, 1};
  ops::gather_rows(stream, matrix(out, 2), matrix(x, 4), Tensor(rows, DType::i32, {2}));
  EXPECT_EQ(out, (std::vector<float>{9, 10, 11, 3, 4, 5}));
}

TEST(FindNotFinite, MarksOnlyBadRowsAndKeepsEarlierErrors) {
  for (int threads : {1, 3}) {
    Stream stream(threads, Isa::portable);
    const int64_t rows = 6, n = 3001;
    std::vector<float> x(size_t(rows * n), 3.4e38f);
    x[size_t(1 * n + 3000)] = std::numeric_limits<float>::quiet_NaN();
    x[size_t(3 * n)] = -std::numeric_limits<float>::infinity();
    x[size_t(4 * n + 7)] = std::numeric_limits<float>::infinity();
    std::vector<int32_t> errors = {-1, -1, -1, -1, 5, -1};
    ops::find_not_finite(stream, row_errors(errors), matrix(x, rows), 9);
    EXPECT_EQ(errors, (std::vector<int32_t>{-1, 9, -1, 9, 5, -1}));
  }
}

}  // namespace
}  // namespace cohort
