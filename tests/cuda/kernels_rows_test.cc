// SPDX-License-Identifier: Apache-2.0
#include <numeric>

#include "kernels/cuda/blocks.h"
#include "kernels/ops.h"
#include "tests/cuda/kernel_fixture.h"

namespace cohort {
namespace {

using test::DeviceArray;

class RowsTest : public test::KernelTest {
 protected:
  Stream stream_ = stream(DType::bf16);
};

std::vector<float> counting(int64_t n) {
  std::vector<float> out(static_cast<size_t>(n));
  std::iota(out.begin(), out.end(), 1.0f);
  return out;
}

TEST_F(RowsTest, GathersRowsInOrder) {
  for (const int64_t width : {1, 3, 8, 100, 4100, 9001}) {
    const std::vector<float> x = counting(5 * width);
    const DeviceArray in = array(DType::f32, x), rows = ints({4, 0, 0, 3}),
                      out = zeros(DType::f32, 4 * width);
    in_every_order([&] {
      ops::cuda::gather_rows(stream_, out.matrix(4), in.matrix(5), rows.list());
      const std::vector<float> got = out.floats();
      for (const auto& [to, from] :
           {std::pair(0, 4), std::pair(1, 0), std::pair(2, 0), std::pair(3, 3)})
        for (int64_t i = 0; i < width; i++)
          ASSERT_EQ(got[size_t(to * width + i)], x[size_t(from * width + i)]);
    });
  }
}

TEST_F(RowsTest, PutsBlocksSideBySide) {
  const std::vector<std::vector<int64_t>> cases = {
      {8}, {1}, {4, 8, 4}, {5, 4, 8}, {4104, 12}, {3, 0, 2}, std::vector<int64_t>(64, 2)};
  for (const std::vector<int64_t>& widths : cases)
    for (const int64_t rows : {1, 3}) {
      const int64_t columns = std::accumulate(widths.begin(), widths.end(), int64_t(0));
      const DeviceArray in = array(DType::f32, counting(rows * columns)),
                        out = zeros(DType::f32, rows * columns);
      ops::cuda::interleave(stream_, out.matrix(rows), in.list(), widths);
      const std::vector<float> got = out.floats();
      float next = 1;  // counts through `gathered`
      int64_t begin = 0;
      for (const int64_t width : widths) {
        for (int64_t r = 0; r < rows; r++)
          for (int64_t i = 0; i < width; i++)
            ASSERT_EQ(got[size_t(r * columns + begin + i)], next++);
        begin += width;
      }
    }
}

TEST_F(RowsTest, LooksTokensUpInOneRanksPartOfTheTable) {
  std::mt19937 random(1);
  for (const int64_t hidden : {8, 50, 2056})
    for (const DType type : test::activation_types()) {
      reference::Weights w = reference::random_weights(type, 6, hidden, random);
      w.values[0] = -0.0f;
      MatrixPart part{type, 6, device().allocate(size_t(bytes_of(type, 6 * hidden)))};
      const std::vector<std::byte> stored = test::encode(type, w.values);
      device().upload(part.packed.data(), stored.data(), stored.size());
      Matrix table(hidden, 0);
      table.adopt_part(std::move(part));
      const DeviceArray ids = ints({105, 99, 100, 106, 102}), out = zeros(DType::f32, 5 * hidden);
      in_every_order([&] {
        ops::cuda::embedding(stream_, out.matrix(5), table, ids.list(), 100);
        const std::vector<float> got = out.floats();
        for (int64_t i = 0; i < hidden; i++) {
          ASSERT_EQ(got[size_t(i)], w.values[size_t(5 * hidden + i)]);
          ASSERT_EQ(got[size_t(hidden + i)], 0);
          ASSERT_EQ(got[size_t(2 * hidden + i)], w.values[size_t(i)]);
          ASSERT_EQ(got[size_t(3 * hidden + i)], 0);
          ASSERT_EQ(got[size_t(4 * hidden + i)], w.values[size_t(2 * hidden + i)]);
        }
        EXPECT_FALSE(std::signbit(got[size_t(2 * hidden)]));  // -0 became +0
      });
    }
}

TEST_F(RowsTest, LooksQuantisedTokensUp) {
  std::mt19937 random(2);
  for (const DType type : reference::weight_types()) {
    if (!is_quantized(type)) continue;
    SCOPED_TRACE(name(type));
    const int64_t hidden = 512, rows = 70;
    const reference::Weights w = reference::random_weights(type, rows, hidden, random);
    const Matrix table = reference::pack(stream_, 0, {&w});
    const DeviceArray ids = ints({0, 69, 33, 70}), out = zeros(DType::f32, 4 * hidden);
    ops::cuda::embedding(stream_, out.matrix(4), table, ids.list(), 0);
    const std::vector<float> got = out.floats();
    const int64_t expected[] = {0, 69, 33};
    for (int64_t t = 0; t < 3; t++)
      for (int64_t i = 0; i < hidden; i++)
        ASSERT_EQ(got[size_t(t * hidden + i)], w.values[size_t(expected[t] * hidden + i)]);
    EXPECT_EQ(std::vector<float>(got.begin() + 3 * hidden, got.end()),
              std::vector<float>(size_t(hidden), 0));
  }
}

class BlocksTest : public RowsTest {
 protected:
  // The cache of one layer, each 4 bytes of it a number of its own.
  DeviceArray cache_of(const KvGeometry& g, int64_t blocks) {
    DeviceArray cache = zeros(DType::f32, blocks * int64_t(g.block_bytes()) / 4);
    cache.set(counting(blocks * int64_t(g.block_bytes()) / 4));
    return cache;
  }
};

TEST_F(BlocksTest, PacksAndUnpacksThem) {
  for (const KvGeometry& g : {KvGeometry{1, 1, 8, DType::f8_e4m3}, KvGeometry{6, 3, 40, DType::f16},
                              KvGeometry{8, 2, 128, DType::bf16}}) {
    const size_t words = g.block_bytes() / 4;
    const DeviceArray cache = cache_of(g, 6), ids = ints({5, -1, 0, 2}),
                      packed = zeros(DType::f32, int64_t(4 * words));
    cuda::copy_blocks(stream_, {cache.data(), g}, ids.list(), packed.data(), cuda::Direction::pack);
    const std::vector<float> in_cache = cache.floats(), got = packed.floats();
    for (size_t i = 0; i < words; i++) {
      ASSERT_EQ(got[i], in_cache[5 * words + i]);
      ASSERT_EQ(got[words + i], 0);  // -1: nothing
      ASSERT_EQ(got[2 * words + i], in_cache[i]);
      ASSERT_EQ(got[3 * words + i], in_cache[2 * words + i]);
    }
    const DeviceArray other = zeros(DType::f32, int64_t(6 * words)), to = ints({1, 4, -1, 3});
    cuda::copy_blocks(stream_, {other.data(), g}, to.list(), packed.data(),
                      cuda::Direction::unpack);
    const std::vector<float> moved = other.floats();
    for (size_t i = 0; i < words; i++) {
      ASSERT_EQ(moved[words + i], in_cache[5 * words + i]);
      ASSERT_EQ(moved[3 * words + i], in_cache[2 * words + i]);
      for (const size_t untouched : {0, 2, 4, 5}) ASSERT_EQ(moved[untouched * words + i], 0);
    }
  }
}

TEST_F(RowsTest, AReplayedGraphReadsOtherRows) {
  const DeviceArray x = array(DType::f32, counting(12));
  DeviceArray rows = ints({0, 0}), out = zeros(DType::f32, 8);
  const CudaGraph graph = CudaGraph::capture(
      device(), [&] { ops::cuda::gather_rows(stream_, out.matrix(2), x.matrix(3), rows.list()); });
  rows.set(std::vector<int32_t>{2, 1});
  graph.launch(device().compute());
  EXPECT_EQ(out.floats(), (std::vector<float>{9, 10, 11, 12, 5, 6, 7, 8}));
  rows.set(std::vector<int32_t>{1, 0});
  graph.launch(device().compute());
  EXPECT_EQ(out.floats(), (std::vector<float>{5, 6, 7, 8, 1, 2, 3, 4}));
}

}  // namespace
}  // namespace cohort
