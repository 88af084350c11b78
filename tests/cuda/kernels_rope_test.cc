// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <optional>

#include "kernels/cuda/batch.h"
#include "kernels/cuda/rope_store.h"
#include "kernels/ops.h"
#include "kernels/rope_table.h"
#include "tests/cuda/kernel_fixture.h"

namespace cohort {
namespace {

using test::DeviceArray;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int kPositions = 200, kBlocks = 14;
constexpr std::byte kUntouched{0x35};  // an ordinary number in every format

struct Shape {
  int heads, kv_heads, dim, dims;
  bool neighbours;
};
// Rows of one launch: position (-1: padding), entry; and the entries' blocks.
struct Rows {
  std::vector<int32_t> position, entry, first_block, blocks;
  int64_t count() const { return int64_t(position.size()); }
  int32_t block(size_t row) const {
    return blocks[size_t(first_block[size_t(entry[row])] + position[row] / kBlockTokens)];
  }
};
// A prefill over an edge of blocks, padding, and two sequences that decode.
Rows some_rows() {
  return {
      {14, 15, 16, 17, -1, 33, 0, -1}, {0, 0, 0, 0, 0, 2, 1, 0}, {0, 2, 3}, {5, 9, 3, 11, 0, 13}};
}
struct HeadNorm {
  std::vector<float> q, k;
  double eps;
};

std::vector<double> frequencies(int dims) {
  std::vector<double> out;
  for (int i = 0; i < dims / 2; i++) out.push_back(std::pow(10000.0, -2.0 * i / dims));
  return out;
}

struct Result {
  std::vector<float> q;
  std::vector<std::byte> cache;
};

class RopeTest : public test::KernelTest {
 protected:
  // Device memory of one call.
  struct Arrays {
    DeviceArray position, entry, first_block, blocks;
    cuda::DeviceBatch batch;
    Arrays(Device& device, const Rows& rows)
        : position(device, rows.position),
          entry(device, rows.entry),
          first_block(device, rows.first_block),
          blocks(device, rows.blocks),
          batch() {
      batch.position = position.as<int32_t>();
      batch.row_entry = entry.as<int32_t>();
      batch.first_block = first_block.as<int32_t>();
      batch.blocks = blocks.as<int32_t>();
    }
  };
  static KvGeometry geometry(const Shape& s, DType cache) {
    return {s.heads, s.kv_heads, s.dim, cache};
  }
  void fill(const DeviceArray& a) {
    const std::vector<std::byte> bytes(a.bytes().size(), kUntouched);
    device().upload(a.data(), bytes.data(), bytes.size());
  }

  Result run(const Shape& shape, DType type, DType cache_type, const Rows& rows,
             const std::vector<float>& qkv, const HeadNorm* norm = nullptr) {
    Stream s = stream(type);
    const KvGeometry g = geometry(shape, cache_type);
    const RopeTable table(device(), frequencies(shape.dims), kPositions, shape.neighbours);
    const Arrays arrays(device(), rows);
    const AttentionBatch batch(g, {}, rows.count(), arrays.batch);
    const DeviceArray in = array(type, qkv), q = zeros(type, rows.count() * g.heads * g.dim),
                      cache = zeros(DType::i8, int64_t(kBlocks * g.block_bytes()));
    fill(q), fill(cache);
    const KvLayer kv{cache.data(), g};
    if (norm == nullptr) {
      ops::cuda::rope_store(s, q.matrix(rows.count()), kv, in.matrix(rows.count()), batch, table);
    } else {
      const DeviceArray qw = array(DType::f32, norm->q), kw = array(DType::f32, norm->k);
      cuda::qk_norm_rope_store(s, q.matrix(rows.count()), kv, in.matrix(rows.count()), batch, table,
                               qw.as<float>(), kw.as<float>(), float(norm->eps));
    }
    return {q.floats(), cache.bytes()};
  }
};

// What one head becomes, and how exactly.
struct Expected {
  std::vector<double> values;
  double magnitude = 0;
};
Expected turned(const Shape& s, const float* head, int position, const std::vector<float>* weight,
                double eps) {
  std::vector<double> values(head, head + s.dim);
  if (weight != nullptr) values = reference::rms_norm({head, size_t(s.dim)}, *weight, eps);
  Expected out{reference::rotate(values, frequencies(s.dims), position, s.neighbours)};
  for (double v : values) out.magnitude = std::max(out.magnitude, 2 * std::fabs(v));
  return out;
}
void expect_head(DType type, const float* got, const Expected& expected) {
  for (size_t i = 0; i < expected.values.size(); i++)
    ASSERT_NEAR(
        got[i], expected.values[i],
        test::allowed(type, expected.values[i]) + reference::kElementwise * expected.magnitude)
        << "dimension " << i;
}

// Every byte of q and of the cache: what was to be written, and that nothing else was.
void expect_result(const Shape& s, DType type, DType cache_type, const Rows& rows,
                   const std::vector<float>& qkv, const Result& got, const HeadNorm* norm) {
  const KvGeometry g{s.heads, s.kv_heads, s.dim, cache_type};
  const size_t dim = size_t(s.dim), width = size_t(s.heads + 2 * s.kv_heads) * dim;
  const float untouched = test::decode(type, std::vector<std::byte>(4, kUntouched))[0];
  std::vector<bool> written(got.cache.size());
  for (size_t r = 0; r < rows.position.size(); r++) {
    const float* in = qkv.data() + r * width;
    const float* q = got.q.data() + r * size_t(s.heads) * dim;
    const int position = rows.position[r];
    if (position < 0) {
      EXPECT_EQ(std::count(q, q + size_t(s.heads) * dim, untouched), s.heads * s.dim);
      continue;
    }
    for (int h = 0; h < s.heads; h++)
      expect_head(type, q + size_t(h) * dim,
                  turned(s, in + size_t(h) * dim, position, norm ? &norm->q : nullptr,
                         norm ? norm->eps : 0));
    for (int h = 0; h < 2 * s.kv_heads; h++) {
      const bool value = h >= s.kv_heads;
      const float* from = in + size_t(s.heads + h) * dim;
      const Expected expected =
          value ? Expected{{from, from + dim}}
                : turned(s, from, position, norm ? &norm->k : nullptr, norm ? norm->eps : 0);
      const size_t bytes = size_t(bytes_of(cache_type, s.dim));
      const size_t at = size_t(rows.block(r)) * g.block_bytes() +
                        size_t(h % s.kv_heads) * g.chunk_bytes() + (value ? g.plane_bytes() : 0) +
                        size_t(position % kBlockTokens) * bytes;
      const std::vector<std::byte> stored(got.cache.begin() + long(at),
                                          got.cache.begin() + long(at + bytes));
      expect_head(cache_type, test::decode(cache_type, stored).data(), expected);
      std::fill_n(written.begin() + long(at), bytes, true);
    }
  }
  for (size_t i = 0; i < written.size(); i++)
    ASSERT_TRUE(written[i] || got.cache[i] == kUntouched) << "byte " << i << " of the cache";
}

std::vector<float> random_qkv(const Shape& s, DType type, int64_t rows, std::mt19937& random) {
  return test::rounded(
      type, reference::random_floats(rows * (s.heads + 2 * s.kv_heads) * s.dim, random, 2));
}

const std::vector<DType> kCacheTypes = {DType::f32, DType::f16, DType::bf16, DType::f8_e4m3};

TEST_F(RopeTest, EveryTypeOfActivationsAndCache) {
  std::mt19937 random(1);
  for (const bool neighbours : {false, true})
    for (const int dim : {32, 24})  // with wide accesses, and without
      for (const DType type : test::activation_types())
        for (const DType cache : kCacheTypes) {
          SCOPED_TRACE(concat(name(type), " ", name(cache), " ", dim, " ", neighbours));
          const Shape shape{4, 2, dim, dim, neighbours};
          const std::vector<float> qkv = random_qkv(shape, type, 8, random);
          expect_result(shape, type, cache, some_rows(), qkv,
                        run(shape, type, cache, some_rows(), qkv), nullptr);
        }
}

TEST_F(RopeTest, ManyShapes) {
  std::mt19937 random(2);
  const Shape shapes[] = {{3, 1, 80, 80, false},   {3, 1, 80, 80, true},   {2, 1, 128, 64, false},
                          {2, 1, 128, 64, true},   {2, 2, 96, 32, false},  {2, 1, 64, 20, false},
                          {2, 1, 64, 20, true},    {1, 1, 512, 512, true}, {1, 1, 504, 504, false},
                          {70, 10, 128, 96, true}, {2, 1, 64, 0, false},   {1, 1, 8, 8, true},
                          {4, 4, 72, 16, false}};
  for (const Shape& shape : shapes) {
    SCOPED_TRACE(concat(shape.heads, " heads of ", shape.dim, ", ", shape.dims, " turn"));
    const std::vector<float> qkv = random_qkv(shape, DType::bf16, 8, random);
    Result first;
    in_every_order([&] {
      const Result got = run(shape, DType::bf16, DType::f16, some_rows(), qkv);
      if (first.q.empty()) first = got;
      EXPECT_TRUE(same_bits(got.q, first.q));
      EXPECT_EQ(got.cache, first.cache);
    });
    expect_result(shape, DType::bf16, DType::f16, some_rows(), qkv, first, nullptr);
  }
}

TEST_F(RopeTest, NormalisesHeadsBeforeRotation) {
  std::mt19937 random(3);
  const Shape shapes[] = {{5, 1, 128, 128, false}, {3, 3, 80, 80, true},  {2, 1, 64, 32, false},
                          {2, 1, 40, 40, true},    {1, 1, 8, 4, false},   {66, 4, 128, 128, false},
                          {1, 1, 512, 512, false}, {1, 1, 504, 504, true}};
  for (const Shape& shape : shapes) {
    SCOPED_TRACE(concat(shape.heads, " heads of ", shape.dim));
    const HeadNorm norm{reference::random_floats(shape.dim, random),
                        reference::random_floats(shape.dim, random), double(1e-6f)};
    for (const DType type : test::activation_types()) {
      const std::vector<float> qkv = random_qkv(shape, type, 8, random);
      Result first;
      in_every_order([&] {
        const Result got = run(shape, type, DType::f32, some_rows(), qkv, &norm);
        if (first.q.empty()) first = got;
        EXPECT_TRUE(same_bits(got.q, first.q));
        EXPECT_EQ(got.cache, first.cache);
      });
      expect_result(shape, type, DType::f32, some_rows(), qkv, first, &norm);
    }
  }
}

TEST_F(RopeTest, ARowAloneEqualsItselfInABatch) {
  std::mt19937 random(4);
  const Rows all = some_rows();
  for (const Shape& shape : {Shape{6, 2, 64, 64, false}, Shape{3, 1, 40, 24, true}}) {
    const size_t q_width = size_t(shape.heads * shape.dim),
                 width = size_t((shape.heads + 2 * shape.kv_heads) * shape.dim);
    const HeadNorm norm{reference::random_floats(shape.dim, random),
                        reference::random_floats(shape.dim, random), 1e-6};
    const std::vector<float> qkv = random_qkv(shape, DType::f16, 8, random);
    const Result together = run(shape, DType::f16, DType::f16, all, qkv, &norm);
    for (size_t r = 0; r < all.position.size(); r++) {
      if (all.position[r] < 0) continue;
      const Rows one{{all.position[r]}, {all.entry[r]}, all.first_block, all.blocks};
      const std::vector<float> row(qkv.begin() + long(r * width),
                                   qkv.begin() + long((r + 1) * width));
      const Result alone = run(shape, DType::f16, DType::f16, one, row, &norm);
      EXPECT_TRUE(
          same_bits(alone.q, std::vector<float>(together.q.begin() + long(r * q_width),
                                                together.q.begin() + long((r + 1) * q_width))));
      for (size_t i = 0; i < alone.cache.size(); i++)
        if (alone.cache[i] != kUntouched) {
          ASSERT_EQ(alone.cache[i], together.cache[i]) << i;
        }
    }
  }
}

TEST_F(RopeTest, TheCacheSaturates) {
  const Rows row{{0}, {0}, {0}, {1}};
  for (const int dim : {16, 8})
    for (const auto& [cache, largest] :
         {std::pair(DType::f16, 65504.0f), std::pair(DType::f8_e4m3, 448.0f)}) {
      const Shape shape{1, 1, dim, dim, true};
      std::vector<float> qkv(size_t(3 * dim), 1);
      float* k = &qkv[size_t(dim)];
      float* v = &qkv[size_t(2 * dim)];
      k[0] = 1e6f, k[3] = -1e6f, v[1] = 1e30f, v[2] = -70000;
      v[3] = std::nanf(""), v[4] = kInfinity, v[5] = -kInfinity;
      const Result got = run(shape, DType::f32, cache, row, qkv);
      const KvGeometry g = geometry(shape, cache);
      const std::vector<float> stored =
          test::decode(cache, {got.cache.begin() + long(g.block_bytes()), got.cache.end()});
      const float* keys = stored.data();
      const float* values = keys + dim * kBlockTokens;
      EXPECT_EQ(keys[0], largest);
      EXPECT_EQ(keys[3], -largest);
      EXPECT_EQ(values[1], largest);
      EXPECT_EQ(values[2], -largest);
      EXPECT_TRUE(std::isnan(values[3]));
      const float infinity = cache == DType::f16 ? kInfinity : largest;  // e4m3 has none
      EXPECT_EQ(values[4], infinity);
      EXPECT_EQ(values[5], -infinity);
      EXPECT_EQ(values[6], 1);
    }
}

TEST_F(RopeTest, AReplayedGraphServesAnotherBatch) {
  std::mt19937 random(5);
  const Shape shape{4, 1, 64, 64, false};
  const KvGeometry g = geometry(shape, DType::bf16);
  Stream s = stream(DType::bf16);
  const RopeTable table(device(), frequencies(64), kPositions, false);
  Rows rows = some_rows();
  Arrays arrays(device(), rows);
  const AttentionBatch batch(g, {}, 8, arrays.batch);
  DeviceArray in = zeros(DType::bf16, 8 * 6 * 64), q = zeros(DType::bf16, 8 * 4 * 64),
              cache = zeros(DType::i8, int64_t(kBlocks * g.block_bytes()));
  const CudaGraph graph = CudaGraph::capture(device(), [&] {
    ops::cuda::rope_store(s, q.matrix(8), {cache.data(), g}, in.matrix(8), batch, table);
  });
  for (int turn = 0; turn < 3; turn++) {
    if (turn > 0) {
      rows.position = {40 + turn, -1, 3 * turn, -1, -1, 17, -1, 31 + turn};
      rows.entry = {2, 0, 1, 0, 0, 0, 0, 2};
      rows.first_block = {3, 5, 0};
      rows.blocks = {10, 2, 4, 7, 8, turn};
      arrays.position.set(rows.position), arrays.entry.set(rows.entry);
      arrays.first_block.set(rows.first_block), arrays.blocks.set(rows.blocks);
    }
    const std::vector<float> qkv = random_qkv(shape, DType::bf16, 8, random);
    in.set(qkv);
    fill(q), fill(cache);
    graph.launch(device().compute());
    expect_result(shape, DType::bf16, DType::bf16, rows, qkv, {q.floats(), cache.bytes()}, nullptr);
  }
}

}  // namespace
}  // namespace cohort
