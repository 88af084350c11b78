// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/cuda/attention_world.h"

namespace cohort::test {
namespace {

using Parts = std::vector<AttentionPart>;

std::string describe(const KvGeometry& g, DType activations) {
  return concat(g.heads, "/", g.kv_heads, " dim ", g.dim, " ", name(g.dtype), ", activations ",
                name(activations));
}

struct Case {
  KvGeometry g;
  DType activations;
};

class AttentionTest : public RuntimeTest {
 protected:
  ~AttentionTest() override { emu::options() = {}; }
};

AttentionWorld world(const Case& c, const std::vector<int>& lengths) {
  return AttentionWorld(c.g, c.activations, lengths);
}

const std::vector<Case>& cases() {
  constexpr DType f32 = DType::f32, f16 = DType::f16, bf16 = DType::bf16, f8 = DType::f8_e4m3;
  static const std::vector<Case> all = {
      {{9, 3, 64, f16}, f16},
      {{8, 2, 128, bf16}, bf16},
      {{8, 8, 80, f16}, f16},
      {{14, 2, 64, f8}, bf16},
      {{4, 1, 128, f8}, f16},
      {{4, 2, 24, bf16}, bf16},
      {{2, 1, 8, f8}, f16},
      {{4, 1, 96, bf16}, bf16},
      {{2, 1, 256, f16}, f16},
      {{2, 1, 136, f8}, bf16},
      {{20, 1, 32, f16}, f16},
      {{9, 3, 64, f32}, f32},
      {{4, 1, 8, f32}, f32},
      {{2, 1, 264, bf16}, bf16},
      {{4, 2, 24, f16}, bf16},
      {{2, 1, 16, f8}, f32},
      // Groups that are cut: 3 and 2 of 3 heads, 1 and 3, one of 7, 1 and 4 and 1 of 4.
      {{5, 2, 64, f16, false, 3, 0}, f16},
      {{4, 2, 64, f8, false, 3, 2}, bf16},
      {{1, 1, 128, bf16, false, 7, 3}, bf16},
      {{6, 3, 24, f32, false, 4, 3}, f32},
  };
  return all;
}

TEST_F(AttentionTest, IsCloseToDoublePrecision) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(describe(c.g, c.activations));
    AttentionWorld w = world(c, {1, 40, 300, 131});
    // Steps of one row, a chunk that begins and ends anywhere, padding before and after.
    w.step({{0, 0, 1}, {2, 299, 1}, {1, 17, 23}, {3, 130, 1}}, 1);
    EXPECT_LE(w.error(0, 0), 1);
    EXPECT_LE(w.error(1, 17), 1);
    EXPECT_LE(w.error(1, 39), 1);
    EXPECT_LE(w.error(2, 299), 1);
    EXPECT_LE(w.error(3, 130), 1);
  }
}

// One of each kernel and way to bring keys to shared memory, with groups that divide no tile.
const std::vector<Case>& kernels() {
  constexpr DType f32 = DType::f32, f16 = DType::f16, bf16 = DType::bf16, f8 = DType::f8_e4m3;
  static const std::vector<Case> all = {{{9, 3, 64, f16}, f16},
                                        {{4, 2, 120, bf16}, bf16},
                                        {{7, 1, 40, f8}, bf16},
                                        {{3, 1, 136, f16}, f16},
                                        {{2, 1, 192, f8}, f16},
                                        {{6, 2, 16, f32}, f32},
                                        {{5, 3, 64, f16, false, 3, 2}, f16}};
  return all;
}

TEST_F(AttentionTest, EveryWayToComputeARowGivesTheSameBits) {
  for (const Case& c : kernels()) {
    SCOPED_TRACE(describe(c.g, c.activations));
    AttentionWorld w = world(c, {262, 33});
    w.step({{0, 0, 262}, {1, 0, 33}});
    const auto whole = w.results();
    for (int position : {0, 100, 128, 261}) EXPECT_LE(w.error(0, position), 1);
    w.forget();
    // Alone and in chunks.
    for (const auto& [start, end] : {std::pair{0, 1}, {1, 60}, {60, 127}, {127, 131}, {131, 262}})
      w.step({{0, start, end - start}});
    EXPECT_EQ(w.results()[0], whole[0]);
    // Position by position, in company.
    for (int position : {0, 32, 127, 128, 255, 261}) {
      w.step({{1, 3, 9}, {0, position, 1}}, 2);
      EXPECT_EQ(w.results()[0][size_t(position)], whole[0][size_t(position)]) << position;
    }
    for (size_t position = 3; position < 12; position++)
      EXPECT_EQ(w.results()[1][position], whole[1][position]) << position;
  }
}

// Query heads [begin, end) of 9 that read 3 KV heads, as a rank has them.
void expect_bits_of_all(const Case& all, int begin, int end) {
  const std::vector<int> lengths = {150, 20};
  AttentionWorld whole = world(all, lengths);
  Case some = all;
  const int first = begin / 3, last = (end + 2) / 3;
  some.g.heads = end - begin, some.g.kv_heads = last - first;
  some.g.group_heads = 3, some.g.skipped_heads = begin - 3 * first;
  AttentionWorld part = world(some, lengths);
  const auto cut = [](const std::vector<std::byte>& rows, int heads, int from, int to,
                      size_t size) {
    std::vector<std::byte> out;
    for (size_t at = 0; at < rows.size(); at += size_t(heads) * size)
      out.insert(out.end(), rows.begin() + ptrdiff_t(at + size_t(from) * size),
                 rows.begin() + ptrdiff_t(at + size_t(to) * size));
    return out;
  };
  const size_t q = size_t(bytes_of(all.activations, all.g.dim)),
               kv = size_t(bytes_of(all.g.dtype, all.g.dim));
  for (size_t i = 0; i < lengths.size(); i++) {
    const AttentionSequence& from = whole.sequences[i];
    part.sequences[i].q = cut(from.q, 9, begin, end, q);
    part.sequences[i].k = cut(from.k, 3, first, last, kv);
    part.sequences[i].v = cut(from.v, 3, first, last, kv);
  }
  const Parts parts = {{0, 100, 50}, {1, 19, 1}};
  whole.step(parts), part.step(parts);
  for (int position = 100; position < 150; position++)
    EXPECT_EQ(part.results()[0][size_t(position)],
              cut(whole.results()[0][size_t(position)], 9, begin, end, q));
  EXPECT_EQ(part.results()[1][19], cut(whole.results()[1][19], 9, begin, end, q));
}

TEST_F(AttentionTest, SomeHeadsHaveTheBitsOfAllHeads) {
  constexpr DType f16 = DType::f16, f32 = DType::f32;
  for (const Case& c : {Case{{9, 3, 64, f16}, f16}, Case{{9, 3, 16, f32}, f32}})
    for (const auto& [begin, end] : {std::pair(0, 5), std::pair(5, 9), std::pair(2, 7)}) {
      SCOPED_TRACE(concat(describe(c.g, c.activations), ", heads ", begin, " to ", end));
      expect_bits_of_all(c, begin, end);
    }
}

TEST_F(AttentionTest, HowWorkIsCutDoesNotMatter) {
  for (const Case& c : kernels()) {
    SCOPED_TRACE(describe(c.g, c.activations));
    AttentionWorld w = world(c, {650, 200, 140});
    const Parts parts = {{0, 649, 1}, {1, 199, 1}, {2, 110, 30}};
    w.step(parts);
    const auto single = w.results();
    EXPECT_LE(w.error(0, 649), 1);
    for (int splits : {1, 2, 4, 6}) {
      w.forget();
      w.splits_per_item = splits;
      w.step(parts);
      EXPECT_EQ(w.results(), single) << splits;
    }
  }
}

TEST_F(AttentionTest, OrderOfThreadsDoesNotMatter) {
  for (const Case& c : kernels()) {
    SCOPED_TRACE(describe(c.g, c.activations));
    std::vector<std::vector<std::vector<std::byte>>> first;
    for (const emu::Order order : {emu::Order::forward, emu::Order::reverse, emu::Order::random}) {
      emu::options().order = order;
      AttentionWorld w = world(c, {150, 20, 140});
      w.step({{0, 149, 1}, {1, 0, 20}, {2, 110, 30}});
      if (first.empty()) first = w.results();
      EXPECT_EQ(w.results(), first);
    }
  }
}

// Elements [kv head][dim] of one position become NaN.
void poison(AttentionWorld& w, std::vector<std::byte>& plane, int position, int kv_head,
            const KvGeometry& g) {
  const size_t row = size_t(bytes_of(g.dtype, g.dim));
  const size_t at = (size_t(position) * size_t(g.kv_heads) + size_t(kv_head)) * row;
  std::fill_n(plane.begin() + ptrdiff_t(at), row, std::byte(0xff));
  w.forget();
}

TEST_F(AttentionTest, NanStaysInTheRowsAndHeadsThatSeeIt) {
  for (const Case& c : kernels()) {
    if (c.g.kv_heads < 2) continue;
    SCOPED_TRACE(describe(c.g, c.activations));
    AttentionWorld w = world(c, {40, 40});
    const std::vector<AttentionPart> parts = {{0, 0, 40}, {1, 0, 40}};
    w.step(parts);
    const auto clean = w.results();
    poison(w, w.sequences[0].k, 17, 1, c.g);
    w.step(parts);
    const auto dirty = w.results();
    EXPECT_EQ(dirty[1], clean[1]);
    const size_t head = w.row_width() / size_t(c.g.heads);  // bytes
    const size_t own = size_t(c.g.first_head(1)) * head, end = size_t(c.g.first_head(2)) * head;
    for (size_t position = 0; position < 40; position++) {
      const std::vector<std::byte>&now = dirty[0][position], &then = clean[0][position];
      // Heads of other KV heads, and earlier rows, are what they were.
      EXPECT_TRUE(std::equal(now.begin(), now.begin() + ptrdiff_t(own), then.begin()));
      EXPECT_TRUE(
          std::equal(now.begin() + ptrdiff_t(end), now.end(), then.begin() + ptrdiff_t(end)));
      if (position < 17) {
        EXPECT_EQ(now, then);
        continue;
      }
      const std::vector<float> values =
          decode(c.activations, {now.begin() + ptrdiff_t(own), now.begin() + ptrdiff_t(end)});
      EXPECT_TRUE(std::all_of(values.begin(), values.end(), [](float x) { return std::isnan(x); }))
          << position;
    }
  }
}

TEST_F(AttentionTest, NanValuesStayInTheirSequence) {
  for (const Case& c : kernels()) {
    SCOPED_TRACE(describe(c.g, c.activations));
    AttentionWorld w = world(c, {40, 40});
    const std::vector<AttentionPart> parts = {{0, 30, 1}, {1, 0, 40}};
    w.step(parts);
    const auto clean = w.results();
    poison(w, w.sequences[0].v, 29, 0, c.g);
    poison(w, w.sequences[0].v, 31, 0, c.g);  // behind the row
    w.step(parts);
    EXPECT_EQ(w.results()[1], clean[1]);
    const std::vector<float> row = decode(c.activations, w.results()[0][30]);
    for (int d = 0; d < c.g.dim; d++) EXPECT_TRUE(std::isnan(row[size_t(d)]));
  }
}

TEST_F(AttentionTest, ACapturedStepReplaysWithOtherBatches) {
  for (const Case& c : kernels()) {
    SCOPED_TRACE(describe(c.g, c.activations));
    AttentionWorld w = world(c, {300, 150, 90});
    const std::vector<Parts> batches = {
        {{0, 5, 1}, {1, 7, 1}}, {{0, 299, 1}, {1, 100, 50}, {2, 0, 3}}, {{2, 89, 1}}, {}};
    w.step(batches[0]);
    const CudaGraph graph = CudaGraph::capture(w.device(), [&] { w.enqueue(); });
    for (const Parts& parts : batches) {
      w.forget();
      w.step(parts);
      const auto expected = w.results();
      w.forget();
      w.load(parts);
      graph.launch(w.device().compute());
      w.fetch();
      EXPECT_EQ(w.results(), expected);
    }
  }
}

TEST_F(AttentionTest, ReadsSharedMemoryWithoutConflicts) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(describe(c.g, c.activations));
    AttentionWorld w = world(c, {20, 70});
    emu::stats() = {};
    w.step({{0, 19, 1}, {1, 0, 70}});
    EXPECT_EQ(emu::stats().ldmatrix_conflicts, 0u);
    const bool tensor = c.g.dim <= 256 && c.activations != DType::f32 &&
                        (c.g.dtype == c.activations || c.g.dtype == DType::f8_e4m3);
    EXPECT_EQ(emu::stats().ldmatrix_phases > 0, tensor);
  }
}

}  // namespace
}  // namespace cohort::test
