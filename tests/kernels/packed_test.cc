// SPDX-License-Identifier: Apache-2.0
// Panels hold what was stored, in the layout of docs/arithmetic.md section 2, and nothing else.
#include "kernels/packed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "kernels/matrix.h"
#include "tests/kernels/reference.h"

namespace cohort {
namespace {

std::vector<int64_t> columns_of(DType type) {
  if (!is_quantized(type)) return {1, 4, 7, 8, 33, 96};
  if (info(type).block_elements == 256) return {256, 768};
  return {32, 96, 160, 320};
}

std::vector<std::byte> pack(DType type, int64_t columns, int rows, const std::byte* stored,
                            std::byte before) {
  std::vector<std::byte> panel(size_t(panel_bytes(type, columns)), before);
  pack_panel(type, columns, rows, stored, panel.data());
  return panel;
}

TEST(Packed, EveryRowReadsAsItWasStored) {
  std::mt19937 random(1);
  for (DType type : reference::weight_types())
    for (int64_t columns : columns_of(type))
      for (int rows : {1, 2, 15, 16}) {
        SCOPED_TRACE(concat(name(type), " columns ", columns, " rows ", rows));
        const auto w = reference::random_weights(type, rows, columns, random);
        const auto panel = pack(type, columns, rows, w.stored.data(), std::byte(0xa5));
        // No byte is left as it was.
        EXPECT_EQ(panel, pack(type, columns, rows, w.stored.data(), std::byte(0x5a)));
        std::vector<float> row(size_t(columns), -1);
        for (int r = 0; r < rows; r++) {
          unpack_row(type, columns, panel.data(), r, row.data());
          EXPECT_EQ(0, std::memcmp(row.data(), w.values.data() + r * columns, row.size() * 4)) << r;
        }
        for (int r = rows; r < kPanelRows; r++) {
          unpack_row(type, columns, panel.data(), r, row.data());
          for (float value : row) ASSERT_EQ(value, 0);
        }
      }
}

// The layout itself, of the types whose quants are stored as they are packed.
TEST(Packed, WordsLieWhereTheLayoutSays) {
  std::mt19937 random(2);
  for (DType type : {DType::q4_0, DType::q4_1, DType::q8_0}) {
    const int64_t columns = 96, blocks = 3, bytes = info(type).block_bytes;
    const int64_t quants = type == DType::q8_0 ? 32 : 16, head = bytes - quants;
    std::vector<std::byte> stored(size_t(16 * blocks * bytes));
    for (std::byte& b : stored) b = std::byte(random());
    const auto panel = pack(type, columns, 16, stored.data(), std::byte(0));
    const int64_t record = 16 * head, quants_at = (blocks * record + 63) / 64 * 64;
    for (int64_t r = 0; r < 16; r++)
      for (int64_t b = 0; b < blocks; b++) {
        const std::byte* in = stored.data() + (r * blocks + b) * bytes;
        for (int64_t i = 0; i < head; i++)
          EXPECT_EQ(panel[size_t(b * record + i / 2 * 32 + r * 2 + i % 2)], in[i]);
        for (int64_t i = 0; i < quants; i++)
          EXPECT_EQ(panel[size_t(quants_at + b * quants * 16 + i / 4 * 64 + r * 4 + i % 4)],
                    in[head + i]);
      }
  }
}

// A super-block of a row: its two f16, and what each block multiplies them by.
struct SuperBlock {
  uint16_t floats[2];
  int factors[8][2];
};

SuperBlock super_block(DType type, const std::byte* in) {
  SuperBlock out{};
  std::memcpy(out.floats, in + (type == DType::q6_k ? 208 : 0), type == DType::q6_k ? 2 : 4);
  for (int b = 0; b < 8; b++) {
    const auto byte = [&](int i) { return int(in[4 + i]); };
    int* to = out.factors[b];
    if (type == DType::q6_k) {
      for (int i = 0; i < 2; i++) to[i] = int(int8_t(in[192 + 2 * b + i]));
    } else if (b < 4) {
      to[0] = byte(b) & 63;
      to[1] = byte(b + 4) & 63;
    } else {
      to[0] = (byte(b + 4) & 15) + 16 * (byte(b - 4) >> 6);
      to[1] = (byte(b + 4) >> 4) + 16 * (byte(b) >> 6);
    }
  }
  return out;
}

// Those with super-blocks keep both factors of their scales, and subtract no minima: they add
// negative ones.
TEST(Packed, SuperBlocksKeepTheFactorsOfTheirScales) {
  std::mt19937 random(4);
  for (DType type : {DType::q4_k, DType::q5_k, DType::q6_k}) {
    SCOPED_TRACE(name(type));
    const bool minima = type != DType::q6_k;
    const int64_t supers = 3, bytes = info(type).block_bytes, record = minima ? 320 : 288;
    std::vector<std::byte> stored(size_t(16 * supers * bytes));
    for (std::byte& b : stored) b = std::byte(random());
    const auto panel = pack(type, supers * 256, 16, stored.data(), std::byte(0));
    EXPECT_EQ(int64_t(panel.size()),
              (supers * record + 63) / 64 * 64 + supers * 256 * 16 / (type == DType::q4_k ? 2 : 1));
    for (int64_t r = 0; r < 16; r++)
      for (int64_t s = 0; s < supers; s++) {
        const SuperBlock own = super_block(type, stored.data() + (r * supers + s) * bytes);
        const std::byte* at = panel.data() + s * record;
        uint16_t floats[2] = {};
        for (int i = 0; i < (minima ? 2 : 1); i++) std::memcpy(floats + i, at + i * 32 + r * 2, 2);
        EXPECT_EQ(floats[0], own.floats[0]);
        EXPECT_EQ(floats[1], minima ? own.floats[1] ^ 0x8000 : 0);
        at += minima ? 64 : 32;
        for (int b = 0; b < 8; b++)
          for (int i = 0; i < 2; i++)
            EXPECT_EQ(int(int8_t(at[b * 32 + i * 16 + r])), own.factors[b][i]) << b;
      }
  }
}

struct ReadStored {
  const reference::Weights& w;
  Status operator()(int64_t begin, int64_t end, std::byte* out) const {
    const int64_t row_bytes = bytes_of(w.type, w.columns);
    std::memcpy(out, w.stored.data() + begin * row_bytes, size_t((end - begin) * row_bytes));
    return {};
  }
};

Status add(Stream& stream, Matrix& m, const std::vector<reference::Weights>& weights) {
  std::vector<ReadStored> reads;
  for (const auto& w : weights) reads.push_back({w});
  std::vector<Matrix::PartSource> sources;
  for (const ReadStored& read : reads) sources.push_back({"", read.w.type, read.w.rows, read});
  return m.add_parts(stream, sources, nullptr);
}

// A matrix of several parts: whichever thread packs, and wherever it is kept.
TEST(Packed, AMatrixHasTheSamePanelsForAnyNumberOfThreads) {
  std::mt19937 random(3);
  const int64_t columns = 512;
  const std::vector<std::pair<DType, int64_t>> shapes = {
      {DType::q4_1, 333}, {DType::q6_k, 1}, {DType::bf16, 70}, {DType::q4_k, 64}};
  std::vector<reference::Weights> weights;
  for (const auto& [type, rows] : shapes)
    weights.push_back(reference::random_weights(type, rows, columns, random));
  std::vector<std::vector<std::byte>> expected;
  for (const auto& w : weights) {
    expected.emplace_back();
    for (int64_t row = 0; row < w.rows; row += 16) {
      const auto panel = pack(w.type, columns, int(std::min<int64_t>(16, w.rows - row)),
                              w.stored.data() + bytes_of(w.type, row * columns), std::byte(0));
      expected.back().insert(expected.back().end(), panel.begin(), panel.end());
    }
  }
  for (int threads : {1, 2, 3, 7}) {
    Stream stream(threads, Isa::portable);
    Matrix m(columns, 0);
    ASSERT_TRUE(add(stream, m, weights).ok());
    ASSERT_EQ(m.parts().size(), shapes.size());
    for (size_t i = 0; i < shapes.size(); i++) {
      const Buffer& packed = m.parts()[i].packed;
      ASSERT_EQ(packed.size(), expected[i].size());
      EXPECT_EQ(0, std::memcmp(packed.data(), expected[i].data(), packed.size())) << threads;
    }
  }
}

}  // namespace
}  // namespace cohort
