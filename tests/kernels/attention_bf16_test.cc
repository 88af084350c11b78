// SPDX-License-Identifier: Apache-2.0
// Attention in bf16 arithmetic (docs/arithmetic.md section 9), against a tile unit made of doubles.
// Its company, cuts and chunks are those of attention_test.cc.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>

#include "base/half.h"
#include "kernels/cpu/exp2.h"
#include "tests/kernels/attention_kinds.h"
#include "tests/kernels/attention_world.h"
#include "tests/kernels/streams.h"
#include "tests/kernels/tile_unit.h"

namespace cohort {
namespace {

constexpr size_t kSplitKeys = 256;

using Rows = std::vector<std::vector<float>>;

// ---- attention by the book ----------------------------------------------------------------------
struct Partial {
  std::vector<float> sums;
  float max, weight;
};

// Keys [begin, end), all of them visible; q is scaled.
Partial split_of(const std::vector<float>& q, const Rows& keys, const Rows& values, size_t begin,
                 size_t end) {
  Partial out{{}, -std::numeric_limits<float>::max(), 0};
  std::vector<float> p;
  for (size_t j = begin; j < end; j++) {
    p.push_back(tile_unit::tile_sum(keys[j].data(), q.data(), int64_t(q.size())));
    if (p.back() > out.max) out.max = p.back();
  }
  float lanes[16] = {};
  for (size_t j = 0; j < p.size(); j++) {
    p[j] = tile_unit::rounded_to_bf16(exp2_not_positive(p[j] - out.max));
    lanes[j % 16] += p[j];
  }
  for (int apart = 8; apart > 0; apart /= 2)
    for (int i = 0; i < apart; i++) lanes[i] += lanes[i + apart];
  out.weight = lanes[0];
  for (size_t d = 0; d < q.size(); d++) {
    std::vector<float> column;
    for (size_t j = begin; j < end; j++) column.push_back(values[j][d]);
    out.sums.push_back(tile_unit::tile_sum(column.data(), p.data(), int64_t(p.size())));
  }
  return out;
}

Partial merged(const Partial& a, const Partial& b) {
  Partial out{{}, std::max(a.max, b.max), 0};
  const float u = exp2_not_positive(a.max - out.max), v = exp2_not_positive(b.max - out.max);
  for (size_t d = 0; d < a.sums.size(); d++)
    out.sums.push_back(std::fma(b.sums[d], v, a.sums[d] * u));
  out.weight = std::fma(b.weight, v, a.weight * u);
  return out;
}

std::vector<float> attend(std::vector<float> q, const Rows& keys, const Rows& values) {
  const float scale = float(std::numbers::log2e / std::sqrt(double(q.size())));
  for (float& x : q) x *= scale;
  std::vector<Partial> splits;
  for (size_t j = 0; j < keys.size(); j += kSplitKeys)
    splits.push_back(split_of(q, keys, values, j, std::min(j + kSplitKeys, keys.size())));
  while (splits.size() > 1) {
    for (size_t i = 0; i < splits.size(); i += 2)
      splits[i / 2] = i + 1 < splits.size() ? merged(splits[i], splits[i + 1]) : splits[i];
    splits.resize((splits.size() + 1) / 2);
  }
  std::vector<float> out = splits[0].sums;
  for (float& x : out) x *= 1 / splits[0].weight;
  return out;
}

class Bf16Attention : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (!supported(GetParam())) GTEST_SKIP() << "this processor has no " << name(GetParam());
  }
};

INSTANTIATE_TEST_SUITE_P(All, Bf16Attention, testing::ValuesIn(kIsas),
                         [](const auto& info) { return std::string(name(info.param)); });

TEST_P(Bf16Attention, GivesTheBitsOfATileUnit) {
  Stream stream(2, GetParam());
  for (const KvGeometry& g :
       {KvGeometry{8, 2, 64, DType::bf16, true}, KvGeometry{3, 1, 80, DType::bf16, true},
        KvGeometry{2, 2, 24, DType::bf16, true}, KvGeometry{13, 1, 16, DType::bf16, true}})
    for (const Kind kind : kKinds) {
      SCOPED_TRACE(concat(describe(g), " kind ", int(kind)));
      std::mt19937 random(unsigned(kind) + 1);
      World world(g, {1, 33, 290}, 1);
      change(world, g, kind, random);
      world.prefill(stream);
      for (const Sequence& s : world.sequences)
        for (int position = 0; position < s.length; position += position < 66 ? 1 : 37)
          for (int head = position % g.group(); head < g.heads; head += g.group()) {
            Rows keys, values;
            for (int j = 0; j <= position; j++) {
              keys.push_back(world.stored(s, j, g.heads + head / g.group()));
              values.push_back(world.stored(s, j, g.heads + g.kv_heads + head / g.group()));
            }
            const auto out = s.out.begin() + (position * g.heads + head) * g.dim;
            ASSERT_TRUE(same_bits({out, out + g.dim},
                                  attend(world.vector_of(s, position, head), keys, values)))
                << "position " << position << " head " << head;
          }
    }
}

// A denormal key or value counts as zero, and a tiny product of normal numbers becomes one.
TEST_P(Bf16Attention, FlushesDenormals) {
  const KvGeometry g{1, 1, 8, DType::bf16, true};
  Stream stream(1, GetParam());
  const auto attended = [&](float q, float k, float v) {
    World world(g, {2}, 1);
    Sequence& s = world.sequences[0];
    std::fill(s.qkv.begin(), s.qkv.end(), 0.0f);
    const auto row = s.qkv.begin() + world.width();  // the second position
    row[0] = q, row[8] = k, row[16] = v;
    world.prefill(stream);
    return s.out[8];
  };
  // Scores of zero and of half the largest exponent: weights 1/2 and 1.
  EXPECT_EQ(attended(0, 0, 1), 0.5f);
  EXPECT_EQ(attended(0x1p127f, 0x1p-127f, 1), 0.5f) << "a denormal key";
  EXPECT_GT(attended(0x1p127f, 0x1p-126f, 1), 0.5f);
  EXPECT_EQ(attended(0, 0, 0x1p-127f), 0.0f) << "a denormal value";
  EXPECT_EQ(attended(0, 0, 0x1p-126f), 0x1p-127f) << "what is computed after sums may be denormal";
}

// Weights are added up as they meet the values: then values of 1 have an average of 1.
TEST_P(Bf16Attention, WeightsAreThoseThatMeetTheValues) {
  const KvGeometry g{1, 1, 8, DType::bf16, true};
  Stream stream(1, GetParam());
  World world(g, {300}, 1);
  Sequence& s = world.sequences[0];
  for (size_t i = 0; i < s.qkv.size(); i++)
    if (i % 24 >= 16) s.qkv[i] = 1;
  world.prefill(stream);
  for (size_t i = 0; i < s.out.size(); i++)
    ASSERT_NEAR(s.out[i], 1, 1e-6) << "rounding weights by themselves would be off by 1e-3";
}

TEST_P(Bf16Attention, LeavesTheModeOfTheProcessorAlone) {
  const KvGeometry g{2, 1, 16, DType::bf16, true};
  World world(g, {20}, 1);
  Stream stream(1, GetParam());
  world.prefill(stream);
  volatile float least = 0x1p-126f;
  const float half = least * 0.5f;
  EXPECT_EQ(std::fpclassify(half), FP_SUBNORMAL);
}

}  // namespace
}  // namespace cohort
