// SPDX-License-Identifier: Apache-2.0
#include "worker/leader/block_allocator.h"

#include <gtest/gtest.h>

#include "base/sha256.h"

namespace cohort {
namespace {

std::vector<int32_t> tokens(int32_t first) {
  std::vector<int32_t> list;
  for (int32_t i = 0; i < 16; ++i) list.push_back(first + i);
  return list;
}

std::vector<BlockKey> chain(int blocks, std::string_view salt = "") {
  std::vector<BlockKey> keys;
  BlockKey parent{};
  for (int b = 0; b < blocks; ++b)
    keys.push_back(parent = block_key(parent, tokens(100 * b), salt));
  return keys;
}

void expect_whole(const BlockAllocator& blocks,
                  std::vector<const std::vector<int32_t>*> tables = {}) {
  const Status status = blocks.check_integrity(tables);
  EXPECT_TRUE(status.ok()) << status.to_string();
}

TEST(BlockKey, IsTheHashOfParentTokensAndSalt) {
  // The definition, spelled out in bytes.
  std::string bytes(16, '\0');
  for (const int32_t token : tokens(5))
    for (int i = 0; i < 4; ++i) bytes += char(uint32_t(token) >> 8 * i & 255);
  bytes += "tenant";
  const Sha256Digest digest = sha256(std::as_bytes(std::span(bytes)));
  const BlockKey key = block_key({}, tokens(5), "tenant");
  EXPECT_TRUE(std::equal(key.begin(), key.end(), digest.begin()));
  EXPECT_NE(key, block_key({}, tokens(5), "other"));
  EXPECT_NE(key, block_key(key, tokens(5), "tenant"));
}

TEST(BlockAllocator, AllocatesAllOrNothing) {
  BlockAllocator blocks(4);
  std::vector<int32_t> table;
  EXPECT_TRUE(blocks.allocate(3, table));
  EXPECT_FALSE(blocks.allocate(2, table));
  EXPECT_EQ(table.size(), 3u);
  EXPECT_EQ(blocks.available(), 1);
  expect_whole(blocks, {&table});
  blocks.release(table, 0);
  EXPECT_EQ(blocks.available(), 4);
  expect_whole(blocks);
}

TEST(BlockAllocator, FencedBlocksArriveWithTheirStep) {
  BlockAllocator blocks(4);
  std::vector<int32_t> first, second;
  ASSERT_TRUE(blocks.allocate(2, first));
  ASSERT_TRUE(blocks.allocate(2, second));
  blocks.release(second, 7);
  blocks.release(first, 6);
  EXPECT_EQ(blocks.available(), 0);
  EXPECT_EQ(blocks.arriving(), 4);
  expect_whole(blocks);
  blocks.completed(6);
  EXPECT_EQ(blocks.available(), 2);
  EXPECT_EQ(blocks.arriving(), 2);
  blocks.completed(7);
  EXPECT_EQ(blocks.available(), 4);
  EXPECT_EQ(blocks.arriving(), 0);
  expect_whole(blocks);
}

TEST(BlockAllocator, CachedPrefixesAreSharedAndEvictedFromTheirTail) {
  BlockAllocator blocks(4);
  const auto keys = chain(4);
  std::vector<int32_t> table;
  ASSERT_TRUE(blocks.allocate(4, table));
  for (int b = 0; b < 4; ++b) blocks.remember(keys[size_t(b)], table[size_t(b)]);
  blocks.release(table, 0);
  EXPECT_EQ(blocks.counts().parked, 4);
  EXPECT_EQ(blocks.find_prefix(keys), table);
  EXPECT_TRUE(blocks.find_prefix(chain(4, "tenant")).empty());

  std::vector<int32_t> other;
  ASSERT_TRUE(blocks.allocate(1, other));
  EXPECT_EQ(other[0], table[3]) << "the tail goes first";
  auto shared = blocks.find_prefix(keys);
  EXPECT_EQ(shared.size(), 3u);
  blocks.share(shared);
  blocks.share(shared);
  EXPECT_EQ(blocks.available(), 0);
  expect_whole(blocks, {&other, &shared, &shared});
  blocks.release(shared, 3);
  EXPECT_EQ(blocks.arriving(), 0) << "somebody still holds them";
  blocks.release(shared, 3);
  EXPECT_EQ(blocks.arriving(), 3);
  blocks.share(shared);
  EXPECT_EQ(blocks.arriving(), 0) << "held again before the fence fell";
  blocks.completed(3);
  expect_whole(blocks, {&other, &shared});
  blocks.release(shared, 0);
  blocks.release(other, 0);
  EXPECT_EQ(blocks.available(), 4);
  expect_whole(blocks);
}

TEST(BlockAllocator, TheSameContentIsCachedOnce) {
  BlockAllocator blocks(2);
  std::vector<int32_t> table;
  ASSERT_TRUE(blocks.allocate(2, table));
  blocks.remember(chain(1)[0], table[0]);
  blocks.remember(chain(1)[0], table[1]);
  EXPECT_EQ(blocks.find_prefix(chain(1)), std::vector<int32_t>{table[0]});
  blocks.release(table, 0);
  EXPECT_EQ(blocks.counts().parked, 1);
  EXPECT_EQ(blocks.counts().free, 1);
}

TEST(BlockAllocator, IntegrityNoticesALostReference) {
  BlockAllocator blocks(2);
  std::vector<int32_t> table;
  ASSERT_TRUE(blocks.allocate(1, table));
  EXPECT_FALSE(blocks.check_integrity({}).ok());
}

}  // namespace
}  // namespace cohort
