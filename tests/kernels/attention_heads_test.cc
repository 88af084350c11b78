// SPDX-License-Identifier: Apache-2.0
// Some of the query heads of a model, as a rank has them: groups that read one KV head may be cut
// anywhere, and each head has the bits that it has beside all others.
#include <gtest/gtest.h>

#include "kernels/attention_plan.h"
#include "tests/kernels/attention_world.h"
#include "tests/kernels/streams.h"

namespace cohort {
namespace {

// Query heads [begin, end) of all, and the KV heads that these read.
KvGeometry part_of(const KvGeometry& all, int begin, int end) {
  KvGeometry g = all;
  const int first = begin / all.group();
  g.heads = end - begin;
  g.kv_heads = (end - 1) / all.group() + 1 - first;
  g.group_heads = all.group();
  g.skipped_heads = begin - first * all.group();
  return g;
}

TEST(KvGeometry, QueryHeadsReadTheKvHeadsOfTheirGroups) {
  const KvGeometry g = part_of({9, 3, 64, DType::f16}, 2, 7);
  EXPECT_EQ(g.kv_heads, 3);
  EXPECT_TRUE(g.consistent());
  const std::array of{0, 1, 1, 1, 2};
  for (int head = 0; head < 5; head++) EXPECT_EQ(g.kv_head_of(head), of[size_t(head)]);
  EXPECT_EQ(g.heads_of(0), 1);
  EXPECT_EQ(g.heads_of(1), 3);
  EXPECT_EQ(g.heads_of(2), 1);
  EXPECT_EQ(g.first_head(2), 4);
  EXPECT_EQ(g.most_heads(), 3);
  EXPECT_EQ(part_of({9, 3, 64, DType::f16}, 4, 5).most_heads(), 1);
  EXPECT_EQ((KvGeometry{8, 2, 64, DType::f16}).heads_of(1), 4);
}

TEST(KvGeometry, IsConsistentWhereEveryKvHeadIsReadAndNoOther) {
  const auto consistent = [](int heads, int kv_heads, int group, int skipped) {
    KvGeometry g{heads, kv_heads, 64, DType::f16};
    g.group_heads = group, g.skipped_heads = skipped;
    return g.consistent();
  };
  EXPECT_TRUE(consistent(0, 0, 0, 0));
  EXPECT_TRUE(consistent(6, 2, 0, 0));
  EXPECT_FALSE(consistent(5, 2, 0, 0));
  EXPECT_TRUE(consistent(5, 2, 3, 0));
  EXPECT_TRUE(consistent(5, 2, 3, 1));
  EXPECT_FALSE(consistent(5, 2, 3, 2));  // 1, 3 and 1 heads of three
  EXPECT_FALSE(consistent(5, 2, 3, 3));
  EXPECT_FALSE(consistent(5, 3, 3, 0));
}

TEST(Attention, OfCutGroupsIsCloseToDoublePrecision) {
  for (const Isa isa : isas())
    for (const KvGeometry& g :
         {part_of({9, 3, 64, DType::f16}, 0, 5), part_of({9, 3, 64, DType::i8}, 5, 9),
          part_of({14, 2, 32, DType::bf16}, 3, 5), part_of({12, 3, 24, DType::f32}, 3, 9)}) {
      SCOPED_TRACE(concat(name(isa), " ", describe(g)));
      World world(g, {1, 17, 300}, 1);
      Stream stream(2, isa);
      world.prefill(stream);
      for (const Sequence& s : world.sequences)
        for (const int position : {0, s.length / 2, s.length - 1})
          for (int head = 0; head < g.heads; head++) {
            std::vector<std::vector<float>> keys, values;
            for (int j = 0; j <= position; j++) {
              keys.push_back(world.stored(s, j, g.heads + g.kv_head_of(head)));
              values.push_back(world.stored(s, j, g.heads + g.kv_heads + g.kv_head_of(head)));
            }
            const auto expected =
                reference::attend(world.vector_of(s, position, head), keys, values);
            for (int d = 0; d < g.dim; d++)
              ASSERT_NEAR(s.out[size_t((position * g.heads + head) * g.dim + d)],
                          expected.out[size_t(d)], reference::kAttention * expected.magnitude);
          }
    }
}

class SomeHeads : public ::testing::TestWithParam<KvGeometry> {
 protected:
  // 300 positions of the last two sequences begin alike, in blocks that they share.
  World make(const KvGeometry& g) const {
    World world(g, {40, 530, 600}, 1);
    world.share(1, 2, 512);
    return world;
  }
  // The same queries, keys and values for these heads.
  World part(const World& all, const KvGeometry& g, int begin) const {
    const KvGeometry& from = GetParam();
    World world = make(g);
    const int first = begin / from.group();
    for (size_t i = 0; i < world.sequences.size(); i++)
      for (int position = 0; position < world.sequences[i].length; position++) {
        float* to = world.sequences[i].qkv.data() + position * world.width();
        const auto copy = [&](int head, int count) {
          for (int h = head; h < head + count; h++) {
            const auto x = all.vector_of(all.sequences[i], position, h);
            to = std::copy(x.begin(), x.end(), to);
          }
        };
        copy(begin, g.heads);
        copy(from.heads + first, g.kv_heads);
        copy(from.heads + from.kv_heads + first, g.kv_heads);
      }
    return world;
  }
  void expect_heads(const World& got, const World& all, int begin, int end) const {
    const int dim = GetParam().dim, heads = GetParam().heads;
    for (size_t i = 0; i < got.sequences.size(); i++)
      for (int position = 0; position < got.sequences[i].length; position++) {
        const auto mine = got.sequences[i].out.begin() + position * (end - begin) * dim;
        const auto theirs = all.sequences[i].out.begin() + (position * heads + begin) * dim;
        const std::vector<float> a(mine, mine + (end - begin) * dim),
            b(theirs, theirs + (end - begin) * dim);
        ASSERT_TRUE(same_bits(a, b)) << "sequence " << i << ", position " << position;
      }
  }
};

TEST_P(SomeHeads, E11_HaveTheBitsOfAllHeads) {
  const KvGeometry& g = GetParam();
  World all = make(g);
  Stream quick(2, detect_isa());
  all.prefill(quick);
  for (const Isa isa : isas())
    for (const auto& [begin, end] : {std::pair(0, 5), std::pair(5, 9), std::pair(4, 5),
                                     std::pair(2, 7), std::pair(3, 6), std::pair(8, 9)}) {
      SCOPED_TRACE(concat(name(isa), ", heads ", begin, " to ", end));
      World some = part(all, part_of(g, begin, end), begin);
      Stream stream(isa == Isa::portable ? 1 : 3, isa);
      if (isa == Isa::portable)  // which is slow
        some.prefill(quick);
      else
        some.prefill(stream);
      std::vector<Part> last;
      for (Sequence& s : some.sequences) {
        last.push_back({&s, s.length - 1, 1});
        std::fill(s.out.end() - (end - begin) * g.dim, s.out.end(), 7.0f);
      }
      some.step(stream, last);
      some.step(stream, {{&some.sequences[0], 1, 30}});
      expect_heads(some, all, begin, end);
    }
}

INSTANTIATE_TEST_SUITE_P(Attention, SomeHeads,
                         ::testing::Values(KvGeometry{9, 3, 64, DType::f16},
                                           KvGeometry{9, 1, 32, DType::f32},
                                           KvGeometry{9, 3, 24, DType::i8},
                                           KvGeometry{9, 3, 32, DType::bf16, true}),
                         [](const auto& info) { return std::string(name(info.param.dtype)); });

// Work is counted by the query heads that there are, not by those of the model's groups.
TEST(AttentionPlan, ItemsCostWhatTheirHeadsDo) {
  std::vector<int32_t> blocks(10);
  const std::vector<AttentionEntry> entries = {{blocks.data(), 0, 0, 100}};
  const AttentionBatch batch(part_of({12, 3, 64, DType::f16}, 3, 10), entries, 1);
  std::vector<float> cost(3, 0.0f);
  std::vector<int> rows(3, 0);
  for (const AttentionItem& item : batch.plan().items) {
    cost[size_t(item.heads.kv_head)] += item.cost;
    rows[size_t(item.heads.kv_head)] += (item.q1 - item.q0) * item.heads.count;
  }
  EXPECT_EQ(rows, (std::vector<int>{100, 400, 200}));
  EXPECT_GT(cost[1], 1.8f * cost[2]);
  EXPECT_GT(cost[2], 1.8f * cost[0]);
}

}  // namespace
}  // namespace cohort
