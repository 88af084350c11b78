// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/half.h"
#include "kernels/attention_plan.h"
#include "kernels/cpu/cache_row.h"
#include "kernels/ops.h"
#include "tests/kernels/attention_world.h"
#include "tests/kernels/reference.h"
#include "tests/kernels/streams.h"

namespace cohort {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

const std::vector<KvGeometry>& geometries() {
  static const std::vector<KvGeometry> all = {
      {9, 3, 64, DType::f16},         {8, 2, 128, DType::bf16},      {4, 4, 16, DType::f32},
      {6, 2, 80, DType::f16},         {4, 1, 96, DType::f32},        {2, 2, 8, DType::bf16},
      {14, 2, 32, DType::f16},        {4, 2, 24, DType::f16},        {9, 3, 64, DType::i8},
      {2, 1, 80, DType::i8},          {2, 2, 8, DType::i8},          {1, 1, 576, DType::i8},
      {8, 2, 64, DType::bf16, true},  {5, 1, 24, DType::bf16, true}, {24, 1, 16, DType::bf16, true},
      {2, 1, 112, DType::bf16, true}, {1, 1, 576, DType::bf16, true}};
  return all;
}

// Times what the oracle gives. In bf16 arithmetic scores are off by 2^-9 of their magnitude, and
// weights by as much of their own; either moves both the sum of values and that of weights.
double tolerance(const KvGeometry& g) {
  return g.bf16_arithmetic ? 0x1.2p-8 : reference::kAttention;
}

TEST(Attention, IsCloseToDoublePrecision) {
  for (Isa isa : isas())
    for (const KvGeometry& g : geometries()) {
      SCOPED_TRACE(concat(name(isa), " ", describe(g)));
      World world(g, {1, 17, 300}, 1);
      Stream stream(2, isa);
      world.prefill(stream);
      for (const Sequence& s : world.sequences)
        for (int position : {0, s.length / 2, s.length - 1})
          for (int head = 0; head < g.heads; head++) {
            std::vector<std::vector<float>> keys, values;
            for (int j = 0; j <= position; j++) {
              keys.push_back(world.stored(s, j, g.heads + head / g.group()));
              values.push_back(world.stored(s, j, g.heads + g.kv_heads + head / g.group()));
            }
            const auto expected =
                reference::attend(world.vector_of(s, position, head), keys, values);
            for (int d = 0; d < g.dim; d++)
              ASSERT_NEAR(s.out[size_t((position * g.heads + head) * g.dim + d)],
                          expected.out[size_t(d)], tolerance(g) * expected.magnitude);
          }
    }
}

// E11: decode, any chunks, any company, any threads and any instruction set give the same bits.
TEST(Attention, E11_SameBitsForDecodeChunksCompanyThreadsAndIsa) {
  for (const KvGeometry& g : geometries()) {
    SCOPED_TRACE(describe(g));
    World world(g, {1, 40, 300}, 2, 2.0f);
    Stream plain(1, Isa::portable);
    world.prefill(plain);
    const auto expected = world.outputs();
    std::mt19937 random(3);
    for (Isa isa : isas())
      for (int threads : isa == Isa::portable ? std::vector{2} : std::vector{1, 2, 3}) {
        Stream stream(threads, isa);
        World again(g, {1, 40, 300}, 2, 2.0f);
        // Chunks of random length of random sequences, until all are done.
        std::vector<int> done(again.sequences.size());
        for (bool more = true; more;) {
          std::vector<Part> parts;
          more = false;
          for (size_t i = 0; i < done.size(); i++) {
            Sequence& s = again.sequences[i];
            if (done[i] == s.length) continue;
            more = true;
            if (random() % 3 == 0) continue;
            const int longest = random() % 2 == 0 ? 1 : 60;
            const int count = std::min(s.length - done[i], 1 + int(random() % unsigned(longest)));
            parts.push_back({&s, done[i], count});
            done[i] += count;
          }
          if (!parts.empty()) again.step(stream, parts);
          // Single steps all the way would take long; the tail decodes.
          for (size_t i = 0; i < done.size(); i++)
            if (done[i] + 150 < again.sequences[i].length) {
              again.step(stream, {{&again.sequences[i], done[i], 130}});
              done[i] += 130;
            }
        }
        for (size_t i = 0; i < expected.size(); i++)
          ASSERT_TRUE(same_bits(again.sequences[i].out, expected[i]))
              << name(isa) << " threads " << threads << " sequence " << i;
      }
  }
}

// A long sequence is cut into pieces that several threads compute and one merges.
class LongSequence : public ::testing::TestWithParam<KvGeometry> {};

TEST_P(LongSequence, E11_SameBitsHoweverItIsCut) {
  const KvGeometry& g = GetParam();
  World world(g, {2100}, 4);
  Stream quick(1, detect_isa());
  world.prefill(quick);
  const auto expected = world.outputs();
  for (Isa isa : isas())
    for (int threads : {1, 2, 5}) {
      Stream stream(threads, isa);
      Sequence& s = world.sequences[0];
      for (int position : {255, 256, 511, 1023, 1024, 1300, 2099})
        world.step(stream, {{&s, position, 1}});
      world.step(stream, {{&s, 1995, 70}});
      ASSERT_TRUE(same_bits(s.out, expected[0])) << name(isa) << " " << threads;
    }
}

// Sequences that begin alike, for 1, 2 and 4 splits, beside one that shares nothing and a prompt.
TEST_P(LongSequence, E11_SameBitsWhereBlocksAreShared) {
  KvGeometry g = GetParam();
  g.heads = 6, g.kv_heads = 2;
  World world(g, {1300, 1400, 800, 600, 530, 300, 280, 300}, 11);
  const std::array shared = {1024, 608, 512, 256, 272};  // tokens, of sequences 1 .. 5 with 0
  for (size_t i = 0; i < shared.size(); i++) world.share(0, i + 1, shared[i]);
  Stream plain(1, Isa::portable), quick(2, detect_isa());
  world.prefill(quick);
  std::vector<Part> last;
  for (Sequence& s : world.sequences) last.push_back({&s, s.length - 1, 1});
  last.back() = {&world.sequences.back(), 250, 50};
  for (const Part& part : last) world.step(plain, {part});
  const auto expected = world.outputs();
  for (Isa isa : isas())
    for (int threads : {1, 2, 5}) {
      for (Sequence& s : world.sequences) std::fill(s.out.end() - g.heads * g.dim, s.out.end(), 7);
      Stream stream(threads, isa);
      world.step(stream, last);
      for (size_t i = 0; i < expected.size(); i++)
        ASSERT_TRUE(same_bits(world.sequences[i].out, expected[i])) << name(isa) << " " << i;
    }
  // Splits that are read for one kv head: 6 of sequence 0, of the others what they do not share.
  last.resize(6);
  const AttentionBatch batch(g, world.entries(last), 2);
  int splits = 0;
  for (const AttentionItem& item : batch.plan().items)
    if (item.heads.kv_head == 0) splits += item.split1 - item.split0;
  EXPECT_EQ(splits, 6 + 2 + 2 + 1 + 2 + 1);
}

INSTANTIATE_TEST_SUITE_P(Attention, LongSequence,
                         ::testing::Values(KvGeometry{3, 1, 64, DType::f16},
                                           KvGeometry{3, 1, 64, DType::i8},
                                           KvGeometry{3, 1, 64, DType::bf16, true}),
                         [](const auto& info) { return std::string(name(info.param.dtype)); });

// Threads take items in order, each as soon as it is free: with one long sequence beside short
// ones, or alone, all of them end at nearly the same time.
TEST(AttentionPlan, NoThreadWaitsForALongSequence) {
  const std::vector<int32_t> blocks(513);
  for (int heads : {1, 3, 8})
    for (int shorter : {0, 31})
      for (int threads : {2, 4, 8}) {
        std::vector<AttentionEntry> entries = {{blocks.data(), 0, 8192, 1}};
        std::vector<std::vector<int32_t>> others;  // nobody shares a block
        for (int i = 1; i <= shorter; i++) {
          others.emplace_back(52, i);
          entries.push_back({others.back().data(), i, 100 + 23 * i, 1});
        }
        const AttentionBatch batch({3 * heads, heads, 64, DType::f16}, entries, threads);
        std::vector<float> busy(static_cast<size_t>(threads));
        float total = 0;
        for (const AttentionItem& item : batch.plan().items) {
          *std::min_element(busy.begin(), busy.end()) += item.cost;
          total += item.cost;
        }
        EXPECT_LT(*std::max_element(busy.begin(), busy.end()), 1.15f * total / float(threads))
            << heads << " heads, " << shorter << " shorter, " << threads << " threads";
      }
}

// What makes an element not finite: of position 20 of sequence 1, kv head 1, which heads 2 and 3
// use. An int8 row hides nothing: it has no scale then.
struct Poison {
  DType type;
  bool value;  // else the key
  float x;
  bool bf16_arithmetic = false;
};

class NotFinite : public ::testing::TestWithParam<Poison> {};

TEST_P(NotFinite, StaysInItsSequenceAndHead) {
  const KvGeometry g{4, 2, 32, GetParam().type, GetParam().bf16_arithmetic};
  for (Isa isa : isas()) {
    World clean(g, {50, 60, 70}, 5), dirty(g, {50, 60, 70}, 5);
    Stream stream(2, isa);
    clean.prefill(stream);
    const int head = 4 + (GetParam().value ? 2 : 0) + 1;
    dirty.sequences[1].qkv[size_t(20 * dirty.width() + head * 32 + 3)] = GetParam().x;
    dirty.prefill(stream);
    EXPECT_TRUE(same_bits(dirty.sequences[0].out, clean.sequences[0].out));
    EXPECT_TRUE(same_bits(dirty.sequences[2].out, clean.sequences[2].out));
    for (int position = 0; position < 60; position++)
      for (int head = 0; head < 4; head++)
        for (int d = 0; d < 32; d++) {
          const auto i = size_t((position * 4 + head) * 32 + d);
          if (position >= 20 && head >= 2)
            EXPECT_TRUE(std::isnan(dirty.sequences[1].out[i]));
          else
            EXPECT_EQ(dirty.sequences[1].out[i], clean.sequences[1].out[i]);
        }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Attention, NotFinite,
    ::testing::Values(Poison{DType::f16, false, kNan}, Poison{DType::i8, false, kNan},
                      Poison{DType::i8, false, kInfinity}, Poison{DType::i8, true, kNan},
                      Poison{DType::i8, true, -kInfinity}, Poison{DType::bf16, false, kNan, true}));

TEST(Attention, ExtremeScoresAndEqualScores) {
  for (DType type : {DType::f32, DType::i8, DType::bf16})
    for (float scale : {0.0f, 30.0f, 1e3f, 1e15f}) {
      const KvGeometry g{2, 1, 64, type, type == DType::bf16};
      World a(g, {300}, 6, scale), b(g, {300}, 6, scale);
      Stream plain(1, Isa::portable);
      a.prefill(plain);
      for (float x : a.sequences[0].out) ASSERT_TRUE(std::isfinite(x)) << scale;
      for (Isa isa : isas()) {
        Stream stream(2, isa);
        b.prefill(stream);
        EXPECT_TRUE(same_bits(a.sequences[0].out, b.sequences[0].out)) << scale;
      }
    }
}

TEST(RopeStore, RotatesBothPairingsAndWritesTheCache) {
  const int heads = 3, kv_heads = 1, dim = 16, position = 37;
  std::mt19937 random(7);
  for (bool neighbours : {false, true})
    for (int dims : {16, 8})
      for (DType type : {DType::f32, DType::f16, DType::bf16}) {
        const KvGeometry g{heads, kv_heads, dim, type};
        std::vector<double> frequencies;
        for (int i = 0; i < dims / 2; i++)
          frequencies.push_back(std::pow(10000.0, -2.0 * i / dims));
        const RopeTable rope(*make_cpu_device(), frequencies, 64, neighbours);
        Cache cache(g, 3);
        const int64_t width = (heads + 2 * kv_heads) * dim;
        std::vector<float> qkv = reference::random_floats(width, random), q(heads * dim);
        const std::vector<int32_t> blocks = {2, 0, 1};
        Stream stream(1, Isa::portable);
        const AttentionBatch batch(g, {{blocks.data(), 0, position, 1}}, 1);
        ops::rope_store(stream, Tensor(q.data(), DType::f32, {1, heads * dim}), cache.layer(),
                        Tensor(qkv.data(), DType::f32, {1, width}), batch, rope);
        const auto rotated = [&](int head, int d) -> double {
          const float* x = qkv.data() + head * dim;
          if (d >= dims) return double(x[d]);
          const int pair = neighbours ? d / 2 : d % (dims / 2);
          const bool second = neighbours ? d % 2 == 1 : d >= dims / 2;
          const double a = double(x[neighbours ? 2 * pair : pair]);
          const double b = double(x[neighbours ? 2 * pair + 1 : pair + dims / 2]);
          const double angle = position * frequencies[size_t(pair)];
          return second ? b * std::cos(angle) + a * std::sin(angle)
                        : a * std::cos(angle) - b * std::sin(angle);
        };
        for (int i = 0; i < heads * dim; i++)
          ASSERT_NEAR(q[size_t(i)], rotated(i / dim, i % dim), 1e-6);
        // Position 37 is slot 5 of the third block, whose id is 1.
        const std::byte* chunk = cache.bytes().data() + g.block_bytes();
        const auto element = [&](const std::byte* plane, int i) {
          if (type == DType::f32) return reinterpret_cast<const float*>(plane)[i];
          const uint16_t bits = reinterpret_cast<const uint16_t*>(plane)[i];
          return type == DType::f16 ? half_to_float(bits) : bf16_to_float(bits);
        };
        const double relative = type == DType::f32 ? 1e-6 : type == DType::f16 ? 6e-4 : 5e-3;
        for (int d = 0; d < dim; d++) {
          const double k = rotated(heads, d);
          EXPECT_NEAR(element(chunk, d * 16 + 5), k, relative * std::fabs(k) + 1e-6);
          EXPECT_EQ(element(chunk + g.plane_bytes(), 5 * dim + d),
                    rounded(type, qkv[size_t((heads + 1) * dim + d)]));
          EXPECT_TRUE(std::isnan(element(chunk, d * 16 + 4)));  // neighbours are untouched
        }
      }
}

// Every kind of number, and those around the ties of f16.
std::vector<float> difficult_floats() {
  std::vector<float> all = {0, -0.0f, kNan, kInfinity, -kInfinity, 65504, 65519, 65520, -1e30f};
  std::mt19937 random(8);
  for (int i = 0; i < 20000; i++) all.push_back(std::bit_cast<float>(uint32_t(random())));
  for (uint32_t h = 0; h < 0x7c00; h += 7) {
    const float low = half_to_float(uint16_t(h)), high = half_to_float(uint16_t(h + 1));
    const float tie = low + (high - low) / 2;
    for (float x : {low, tie, std::nextafter(tie, 0.0f), std::nextafter(tie, 1e9f)})
      all.insert(all.end(), {x, -x});
  }
  while (all.size() % 8 != 0) all.push_back(0);
  return all;
}

// base/half.h has the conversion one by one; its f16 overflows, the cache saturates.
TEST(RopeStore, RoundsLikeTheConversionsOfSingleNumbers) {
  const std::vector<float> all = difficult_floats();
  for (DType type : {DType::f16, DType::bf16}) {
    const KvGeometry g{1, 1, 8, type};
    std::vector<std::byte> chunk(g.chunk_bytes());
    const auto* v = reinterpret_cast<const uint16_t*>(chunk.data() + g.plane_bytes());
    for (size_t i = 0; i < all.size(); i += 8) {
      cpu::store_value(g, chunk.data(), 0, all.data() + i);
      for (size_t d = 0; d < 8; d++) {
        const float x = all[i + d];
        const float kept = std::isfinite(x) ? std::clamp(x, -65504.0f, 65504.0f) : x;
        ASSERT_EQ(v[d], type == DType::f16 ? float_to_half(kept) : float_to_bf16(x)) << x;
      }
    }
  }
}

// Keys and values of a token are quantised each with a scale of its own.
TEST(RopeStore, Int8RowsHaveAScaleEach) {
  const KvGeometry g{1, 1, 24, DType::i8};
  Cache cache(g, 2);
  std::byte* chunk = cache.bytes().data() + g.block_bytes();
  std::mt19937 random(9);
  for (float size : {1.0f, 1e-20f, 1e30f}) {
    const auto k = reference::random_floats(24, random, size);
    const auto v = reference::random_floats(24, random, 3 * size);
    cpu::store_key(g, chunk, 5, k.data());
    cpu::store_value(g, chunk, 5, v.data());
    const auto got_k = cache.scaled_key(1, 0, 5), got_v = cache.scaled_value(1, 0, 5);
    const auto expect_close = [&](const std::vector<float>& x, const std::vector<float>& got) {
      double largest = 0;
      for (float e : x) largest = std::max(largest, std::fabs(double(e)));
      for (size_t d = 0; d < x.size(); d++)  // half a step, and what f32 rounds
        EXPECT_NEAR(double(got[d]), double(x[d]), largest / 127 * 0.50001);
    };
    expect_close(k, got_k);
    expect_close(v, got_v);
  }
  for (int slot : {4, 6}) {  // the neighbours are untouched
    EXPECT_TRUE(std::isnan(cache.scaled_key(1, 0, slot)[0]));
    EXPECT_TRUE(std::isnan(cache.scaled_value(1, 0, slot)[0]));
  }
}

TEST(RopeStore, Int8RowsOfNothingAreZeroAndOfNotFiniteAreNan) {
  const KvGeometry g{1, 1, 16, DType::i8};
  Cache cache(g, 1);
  std::vector<float> row(16, 0.0f);
  for (float tiny : {0.0f, 1e-31f, 1e-45f}) {
    row[3] = -tiny;
    cpu::store_key(g, cache.bytes().data(), 0, row.data());
    EXPECT_EQ(cache.scaled_key(0, 0, 0), std::vector<float>(16, 0.0f));
  }
  for (float x : {kNan, kInfinity, -kInfinity}) {
    row[15] = x;
    cpu::store_value(g, cache.bytes().data(), 1, row.data());
    for (float got : cache.scaled_value(0, 0, 1)) EXPECT_TRUE(std::isnan(got));
  }
}

TEST(RopeStore, HalfCacheSaturatesButKeepsNan) {
  const KvGeometry g{1, 1, 8, DType::f16};
  const RopeTable rope(*make_cpu_device(), {}, 16, false);
  Cache cache(g, 1);
  std::vector<float> qkv(24, 1), q(8);
  qkv[8] = 1e6f;
  qkv[9] = -1e6f;
  qkv[10] = kNan;
  const int32_t block = 0;
  Stream stream(1, Isa::portable);
  const AttentionBatch batch(g, {{&block, 0, 0, 1}}, 1);
  ops::rope_store(stream, Tensor(q.data(), DType::f32, {1, 8}), cache.layer(),
                  Tensor(qkv.data(), DType::f32, {1, 24}), batch, rope);
  const auto* k = reinterpret_cast<const uint16_t*>(cache.bytes().data());
  EXPECT_EQ(half_to_float(k[0]), 65504);
  EXPECT_EQ(half_to_float(k[16]), -65504);
  EXPECT_TRUE(std::isnan(half_to_float(k[32])));
  EXPECT_EQ(half_to_float(k[48]), 1);
}

}  // namespace
}  // namespace cohort
