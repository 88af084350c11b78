// SPDX-License-Identifier: Apache-2.0
// Attention on AMX tiles without a processor that has them: tile instructions are done in software
// where the processor does not know them (trapped_tiles.cc). Linked twice: with the library's
// kernels, whose other instructions are of AVX-512, and with kernels of AVX2 in their place.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/cpu/attention_job.h"
#include "tests/kernels/attention_kinds.h"
#include "tests/kernels/software_tiles.h"
#include "tests/kernels/streams.h"

namespace cohort {
namespace {

class AmxAttention : public testing::Test {
 protected:
  void SetUp() override {
    if (!supported(isa_beside_tiles()))
      GTEST_SKIP() << "NOT TESTED: this processor has no " << name(isa_beside_tiles());
    // Both streams try the tiles once (kernels/cpu/amx_check.h), which is not what is counted.
    World one({1, 1, 16, DType::bf16, true}, {1}, 1);
    for (Stream* stream : {&alone_, &shared_}) one.prefill(*stream);
    products_before_ = software_tile_products();
  }
  // In software, or where a processor has tiles presumably its own.
  bool used_tiles() const {
    const int64_t products = software_tile_products();
    return products > products_before_ || (hardware_ && products == 0);
  }
  using Outputs = std::vector<std::vector<float>>;
  // Of everything at once.
  Outputs prefilled(World& world, Stream& stream) {
    for (Sequence& s : world.sequences) std::fill(s.out.begin(), s.out.end(), 7.0f);
    world.prefill(stream);
    return world.outputs();
  }
  static void expect_same(const Outputs& outputs, const Outputs& expected,
                          const std::string& where) {
    ASSERT_EQ(outputs.size(), expected.size());
    for (size_t i = 0; i < expected.size(); i++)
      ASSERT_TRUE(same_bits(outputs[i], expected[i])) << where << ", sequence " << i;
  }

  const bool hardware_ = supported(Isa::amx);
  int64_t products_before_ = 0;
  Stream plain_{1, Isa::portable}, alone_{1, Isa::amx}, shared_{3, Isa::amx};
  Stream quick_{2, isa_beside_tiles()};
};

TEST_F(AmxAttention, E11_HasThePortableBitsForValuesOfAllKinds) {
  for (const KvGeometry& g :
       {KvGeometry{4, 2, 64, DType::bf16, true}, KvGeometry{3, 1, 80, DType::bf16, true},
        KvGeometry{13, 1, 16, DType::bf16, true}, KvGeometry{1, 1, 128, DType::bf16, true}})
    for (const Kind kind : kKinds) {
      std::mt19937 random(unsigned(kind) + 1);
      World world(g, {1, 33, 270}, 1);
      change(world, g, kind, random);
      const Outputs expected = prefilled(world, plain_);
      expect_same(prefilled(world, shared_), expected, concat(describe(g), " kind ", int(kind)));
    }
  EXPECT_TRUE(used_tiles());
}

// Dimensions that fill tiles, and ones that do not, with any number of columns; groups of heads
// that fill passes, and ones that passes cut anywhere; chunks whose passes see less than whole
// tiles of keys, the end of a split, or none of one. What nobody wrote yet is NaN.
TEST_F(AmxAttention, E11_HasThePortableBitsForAnyChunks) {
  for (const KvGeometry& g :
       {KvGeometry{8, 1, 64, DType::bf16, true}, KvGeometry{3, 1, 80, DType::bf16, true},
        KvGeometry{2, 1, 96, DType::bf16, true}, KvGeometry{2, 1, 128, DType::bf16, true},
        KvGeometry{24, 1, 48, DType::bf16, true}, KvGeometry{1, 1, 576, DType::bf16, true}}) {
    World expected(g, {290}, 2, 2.0f), world(g, {290}, 2, 2.0f);
    expected.prefill(plain_);
    std::mt19937 random(3);
    Sequence& s = world.sequences[0];
    for (int at = 0, chunk = 0, count; at < s.length; at += count, chunk++) {
      count = std::min(s.length - at, 1 + int(random() % (chunk % 2 == 0 ? 100u : 20u)));
      world.step(chunk % 3 == 0 ? shared_ : alone_, {{&s, at, count}});
    }
    expect_same(world.outputs(), expected.outputs(), describe(g));
  }
  EXPECT_TRUE(used_tiles());
}

// Grouped heads of one position are rows enough, cut into pieces that are merged; a sequence's
// length decides how many.
TEST_F(AmxAttention, E11_HasThePortableBitsInDecode) {
  const KvGeometry g{16, 2, 64, DType::bf16, true};
  World world(g, {1300}, 4);
  Sequence& s = world.sequences[0];
  world.prefill(quick_);
  for (const int position : {0, 15, 31, 32, 255, 256, 511, 700, 1023, 1299}) {
    world.step(plain_, {{&s, position, 1}});
    const auto at = s.out.begin() + position * g.heads * g.dim;
    const std::vector<float> expected(at, at + g.heads * g.dim);
    for (Stream* stream : {&alone_, &shared_}) {
      std::fill_n(at, expected.size(), 7.0f);
      world.step(*stream, {{&s, position, 1}});
      ASSERT_TRUE(same_bits({at, at + g.heads * g.dim}, expected)) << position;
    }
  }
  EXPECT_TRUE(used_tiles());
}

// Sequences that begin alike are rows of common items, whose number decides whether they are worth
// tiles: of four or three sequences of three heads each they are.
TEST_F(AmxAttention, E11_HasThePortableBitsWhereBlocksAreShared) {
  const KvGeometry g{6, 2, 64, DType::bf16, true};
  World world(g, {1300, 1400, 800, 600, 530, 300}, 11);
  const std::array shared = {1024, 608, 512, 256};  // tokens, of sequences 1 .. 4 with 0
  for (size_t i = 0; i < shared.size(); i++) world.share(0, i + 1, shared[i]);
  for (Sequence& s : world.sequences) world.step(quick_, {{&s, 0, s.length}});
  std::vector<Part> last;
  for (Sequence& s : world.sequences) last.push_back({&s, s.length - 1, 1});
  for (const Part& part : last) world.step(plain_, {part});
  const Outputs expected = world.outputs();
  for (Stream* stream : {&alone_, &shared_}) {
    for (Sequence& s : world.sequences) std::fill(s.out.end() - g.heads * g.dim, s.out.end(), 7.0f);
    world.step(*stream, last);
    expect_same(world.outputs(), expected, concat(stream->threads().size(), " threads"));
  }
  EXPECT_TRUE(used_tiles());
}

// What a row must not see: values that are infinite or NaN would make it so, however they are
// weighed, and sums that vanish would lose their sign.
TEST_F(AmxAttention, LaterKeysOfATileLeaveNoTrace) {
  const KvGeometry g{8, 1, 32, DType::bf16, true};
  for (const float later : {1.0f, std::numeric_limits<float>::infinity(), std::nanf("")})
    for (const float value : {1.0f, -0x1p-126f}) {
      World world(g, {40}, 5);
      Sequence& s = world.sequences[0];
      for (int position = 0; position < 40; position++)
        for (int d = 0; d < g.dim; d++)
          s.qkv[size_t(position * world.width() + 9 * g.dim + d)] = position < 20   ? value
                                                                    : position < 30 ? later
                                                                                    : 1.0f;
      const Outputs expected = prefilled(world, plain_);
      expect_same(prefilled(world, alone_), expected, concat(later, " after ", value));
      for (int i = 0; i < 20 * g.heads * g.dim; i++) ASSERT_TRUE(std::isfinite(s.out[size_t(i)]));
    }
}

// A sum of -0, where a pass has rows that see the next tile of keys, too.
TEST_F(AmxAttention, LaterTilesLeaveSignsOfZeroAlone) {
  const KvGeometry g{5, 1, 16, DType::bf16, true};
  World world(g, {70}, 7);
  Sequence& s = world.sequences[0];
  std::fill(s.qkv.begin(), s.qkv.end(), 0.0f);  // so that all weights are 1
  for (int d = 0; d < g.dim; d++) {
    s.qkv[size_t(6 * g.dim + d)] = 0x1.8p-126f;
    s.qkv[size_t(32 * world.width() + 6 * g.dim + d)] = -0x1p-125f;
  }
  const Outputs expected = prefilled(world, plain_);
  for (int position : {32, 63, 69}) {
    const float x = expected[0][size_t(position * g.heads * g.dim)];
    EXPECT_TRUE(x == 0 && std::signbit(x) == (position < 64)) << position;
  }
  expect_same(prefilled(world, alone_), expected, "");
  EXPECT_TRUE(used_tiles());
}

// A head that does not fill tiles, and few rows.
TEST_F(AmxAttention, LeavesTheRestToVectors) {
  World heads({8, 2, 24, DType::bf16, true}, {50}, 6), rows({7, 1, 64, DType::bf16, true}, {50}, 6);
  const Outputs heads_expected = prefilled(heads, plain_);
  const Outputs rows_expected = prefilled(rows, plain_);
  expect_same(prefilled(rows, alone_), rows_expected, "prefilled");
  const int64_t before = software_tile_products();
  expect_same(prefilled(heads, alone_), heads_expected, "heads");
  rows.step(alone_, {{&rows.sequences[0], 49, 1}});
  expect_same(rows.outputs(), rows_expected, "rows");
  EXPECT_EQ(software_tile_products(), before);
}

TEST_F(AmxAttention, LeavesTheModeOfTheProcessorAlone) {
  const KvGeometry g{2, 1, 16, DType::bf16, true};
  World world(g, {20}, 1);
  std::mt19937 random(1);
  change(world, g, Kind::vanishing, random);
  world.prefill(alone_);
  volatile float least = 0x1p-126f;
  const float half = least * 0.5f;
  EXPECT_EQ(std::fpclassify(half), FP_SUBNORMAL);
}

}  // namespace
}  // namespace cohort
