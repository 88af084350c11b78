// SPDX-License-Identifier: Apache-2.0
#include "worker/kv_pool.h"

#include <gtest/gtest.h>

#include "worker/where.h"

namespace cohort {
namespace {

constexpr KvGeometry kGeometry{.heads = 6, .kv_heads = 2, .dim = 32, .dtype = DType::f16};

TEST(KvPoolTest, LayersDoNotOverlap) {
  const KvPool pool(*make_cpu_device(), kGeometry, 3, 5);
  const size_t layer_bytes = 5 * kGeometry.block_bytes();
  EXPECT_EQ(kGeometry.block_bytes(), 2u * 2 * 32 * 16 * 2);  // K and V of 2 heads, 16 tokens, f16
  EXPECT_EQ(pool.layer(1).data - pool.layer(0).data, std::ptrdiff_t(layer_bytes));
  EXPECT_EQ(pool.layer(2).data - pool.layer(1).data, std::ptrdiff_t(layer_bytes));
  pool.layer(2).data[layer_bytes - 1] = std::byte(1);  // the last byte is ours
}

TEST(KvPoolTest, Int8BlocksAreHalfOfF16AndTheirScales) {
  KvGeometry small = kGeometry;
  small.dtype = DType::i8;
  const size_t scales = 2 * 2 * 16 * sizeof(float);  // of K and V of 2 heads, 16 tokens
  EXPECT_EQ(small.block_bytes(), kGeometry.block_bytes() / 2 + scales);
}

TEST(KvPoolTest, E06_BlocksFollowMemory) {
  KvDemand demand{.block_bytes = 1000, .kv_memory = 12'345, .most_blocks = 500, .share = 250'000};
  EXPECT_EQ(affordable_blocks(demand), 12);  // as asked
  demand.kv_memory = 0;
  EXPECT_EQ(affordable_blocks(demand), 250);  // its share
  demand.share = -5;                          // a GPU without room for the workspace
  EXPECT_EQ(affordable_blocks(demand), 0);
  demand.share = 250'000;
  demand.most_blocks = 40;
  EXPECT_EQ(affordable_blocks(demand), 40);  // more are of no use
}

TEST(WhereTest, SaysOperationAndLayer) {
  Where where;
  EXPECT_EQ(where.text(), "idle");
  where.set(Operation::attention_output, 17);
  EXPECT_EQ(where.text(), "attention output and its all-reduce tp, layer 17");
  where.set(Operation::head);
  EXPECT_EQ(where.text(), "head and its all-gather tp");
}

TEST(RowErrorTest, CodesNameTheirPlace) {
  EXPECT_EQ(row_error::text(row_error::kEmbedding), "embedding: value is not finite");
  EXPECT_EQ(row_error::text(row_error::attention(0)), "layer 0, attention: value is not finite");
  EXPECT_EQ(row_error::text(row_error::attention(7)), "layer 7, attention: value is not finite");
  EXPECT_EQ(row_error::text(row_error::feed_forward(7)),
            "layer 7, feed-forward: value is not finite");
}

}  // namespace
}  // namespace cohort
