// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/support/replay.h"
#include "tests/support/spawn_ranks.h"
#include "tests/support/tiny_checkpoint.h"
#include "worker/rank.h"

namespace cohort::testing {
namespace {

// What the ranks say, and how many bytes they read together.
struct Loaded {
  std::vector<Status> statuses;
  std::vector<StepLimits> limits;
  int64_t bytes_read = 0, total = 0, packed = 0;
};

Loaded load_all(int ranks, const std::function<ReplicaOptions(int rank)>& options,
                const TinyModel& model) {
  Loaded loaded;
  loaded.statuses.resize(size_t(ranks));
  loaded.limits.resize(size_t(ranks));
  std::mutex mutex;
  spawn_ranks(ranks, [&](World& world) {
    TinyCheckpoint checkpoint(model);
    auto rank = Rank::load(world, checkpoint, options(world.rank()), {});
    const std::lock_guard lock(mutex);
    const size_t r = size_t(world.rank());
    loaded.statuses[r] = rank.status();
    loaded.bytes_read += checkpoint.bytes_read();
    loaded.total = checkpoint.total_weight_bytes();
    if (!rank.ok()) return;
    loaded.limits[r] = (*rank)->limits();
    loaded.packed += (*rank)->weight_bytes();
  });
  return loaded;
}

TEST(RankLoadTest, E25_AllRanksTogetherReadTheCheckpointOnce) {
  for (const bool tied : {true, false})
    for (const auto& [tp, pp] :
         {std::pair(1, 1), std::pair(2, 1), std::pair(1, 3), std::pair(3, 2)}) {
      SCOPED_TRACE(concat("tp ", tp, " pp ", pp, " tied ", tied));
      const auto loaded = load_all(
          tp * pp, [&, tp = tp, pp = pp](int) { return tiny_options(tp, pp); },
          tiny_model(DType::q8_0, tied));
      for (const Status& status : loaded.statuses) EXPECT_TRUE(status.ok()) << status.to_string();
      EXPECT_GE(loaded.bytes_read, loaded.total);
      EXPECT_LE(double(loaded.bytes_read), 1.1 * double(loaded.total));
    }
}

TEST(RankLoadTest, E10_ImpossibleLayoutsSayWhatIsPossibleBeforeAnyWeightIsRead) {
  const auto six = load_all(  // and 5 feed-forward units
      6, [](int) { return tiny_options(6, 1); }, tiny_model(DType::q8_0));
  for (const Status& status : six.statuses) {
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_NE(status.message().find("Possible sizes: 1 to 5"), std::string::npos)
        << status.message();
  }
  EXPECT_EQ(six.bytes_read, 0);
  const auto stages = load_all(
      4, [](int) { return tiny_options(1, 4); }, tiny_model(DType::q8_0));
  EXPECT_NE(stages.statuses[0].message().find("Possible: 1 to 3"), std::string::npos);
  EXPECT_EQ(stages.bytes_read, 0);
}

TEST(RankLoadTest, E05_AFailureOfOneRankIsToldByAll) {
  const auto options = [](int rank) {
    ReplicaOptions options = tiny_options(2);
    if (rank == 1) options.threads = 0;
    return options;
  };
  const auto loaded = load_all(2, options, tiny_model(DType::q8_0));
  EXPECT_EQ(loaded.statuses[1].code(), Code::kInvalidArgument);
  EXPECT_NE(loaded.statuses[0].message().find("rank 1"), std::string::npos);
  EXPECT_NE(loaded.statuses[0].message().find("at least 1 thread"), std::string::npos);
}

// A checkpoint on which one read fails.
class BrokenCheckpoint : public TinyCheckpoint {
 public:
  using TinyCheckpoint::TinyCheckpoint;
  std::string broken;
  Status read(const WeightInfo& weight, int64_t row_begin, int64_t row_end, int64_t column_begin,
              int64_t column_end, std::byte* out) override {
    if (weight.name == broken) return data_loss("a bad sector in " + broken);
    return TinyCheckpoint::read(weight, row_begin, row_end, column_begin, column_end, out);
  }
};

TEST(RankLoadTest, E05_AReadThatFailsOnOneRankEndsAllSoon) {
  for (const char* broken : {"embedding", "layers.0.feed_forward.down"}) {
    const TimePoint started = std::chrono::steady_clock::now();
    spawn_ranks(4, [&](World& world) {
      BrokenCheckpoint checkpoint(tiny_model(DType::q8_0));
      if (world.rank() == 1) checkpoint.broken = broken;
      const Status status = Rank::load(world, checkpoint, tiny_options(2, 2), {}).status();
      EXPECT_FALSE(status.ok());
      if (world.rank() == 1) {
        EXPECT_EQ(status.code(), Code::kDataLoss) << status.to_string();
      }
      if (world.rank() == 0) {
        EXPECT_NE(status.message().find("rank 1"), std::string::npos) << status.message();
      }
    });
    EXPECT_LT(seconds(std::chrono::steady_clock::now() - started), 20);
  }
}

TEST(RankLoadTest, RanksThatWereStartedDifferentlyRefuse) {
  const auto options = [](int rank) {
    ReplicaOptions options = tiny_options(2);
    if (rank == 1) options.kv_dtype = DType::f32;
    return options;
  };
  for (const Status& status : load_all(2, options, tiny_model(DType::q8_0)).statuses) {
    EXPECT_EQ(status.code(), Code::kFailedPrecondition);
    EXPECT_NE(status.message().find("started differently"), std::string::npos);
  }
}

TEST(RankLoadTest, E06_TheSmallestPoolDecidesAndTooLittleMemoryIsRefused) {
  // 2:1 shares: rank 0 holds 2 KV heads, rank 1 one; the same bytes give rank 0 half the blocks.
  // A block of f16 takes 2 * 32 * 16 * 2 bytes per KV head, in each of 3 layers.
  const int64_t head_block = 2 * 32 * 16 * 2 * 3;
  const auto options = [&](int64_t blocks) {
    return [=](int) {
      ReplicaOptions options = tiny_options(2, 1, {2, 1});
      options.kv_memory = 2 * head_block * blocks;
      return options;
    };
  };
  const auto loaded = load_all(2, options(10), tiny_model(DType::q8_0));
  for (const StepLimits& limits : loaded.limits) EXPECT_EQ(limits.blocks, 10);
  const auto refused = load_all(2, options(5), tiny_model(DType::q8_0));  // 96 positions need 6
  EXPECT_EQ(refused.statuses[0].code(), Code::kResourceExhausted);
  EXPECT_NE(refused.statuses[1].message().find("rank 0"), std::string::npos)
      << refused.statuses[1].message();
  EXPECT_EQ(refused.bytes_read, 0);
}

// Of 9 query heads rank 0 has 4, which read 2 of 3 KV heads, and rank 1 has 5, which read 2 as
// well.
TEST(RankLoadTest, E06_AKvHeadOfTwoRanksTakesMemoryOfBoth) {
  const int64_t head_block = 2 * 32 * 16 * 2 * 3;
  const auto loaded = load_all(
      2,
      [=](int) {
        ReplicaOptions options = tiny_options(2);
        options.kv_memory = 2 * head_block * 10;
        return options;
      },
      tiny_model(DType::q8_0));
  for (const StepLimits& limits : loaded.limits) EXPECT_EQ(limits.blocks, 10);
}

TEST(RankLoadTest, TheDefaultPoolHoldsEverySlot) {
  const auto loaded = load_all(
      1, [](int) { return tiny_options(); }, tiny_model(DType::q8_0));
  EXPECT_EQ(loaded.limits[0].blocks, 6 * 6);  // 6 slots of 96 positions
}

TEST(RankLoadTest, SeveralRanksRunAsManySequencesAsAMessageOfTokensHolds) {
  const auto load = [](int tp, int32_t slots) {
    const auto options = [=](int) {
      ReplicaOptions options = tiny_options(tp);
      options.limits.max_slots = slots;
      return options;
    };
    return load_all(tp, options, tiny_model(DType::q8_0)).statuses[0];
  };
  EXPECT_EQ(load(2, 1001).code(), Code::kInvalidArgument);
  EXPECT_NE(load(2, 1001).message().find("at most 1000 sequences"), std::string::npos);
  EXPECT_TRUE(load(2, 1000).ok());
  EXPECT_TRUE(load(1, 1001).ok());
}

TEST(RankLoadTest, AWorldOfTheWrongSizeIsRefused) {
  const auto loaded = load_all(
      2, [](int) { return tiny_options(3); }, tiny_model(DType::q8_0));
  EXPECT_NE(loaded.statuses[0].message().find("needs 3 ranks; 2 were started"), std::string::npos)
      << loaded.statuses[0].message();
}

}  // namespace
}  // namespace cohort::testing
