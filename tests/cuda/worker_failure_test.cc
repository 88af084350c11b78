// SPDX-License-Identifier: Apache-2.0
// What goes wrong on one GPU ends the replica in bounded time, with a text that says where.
#include <gmock/gmock.h>

#include <future>
#include <latch>
#include <optional>

#include "tests/cuda/worker_fixture.h"
#include "tests/cuda_emulation/planting.h"
#include "tests/support/spawn_ranks.h"
#include "tests/worker/local_replica.h"
#include "worker/rank_group.h"
#include "worker/rank_loop.h"

namespace cohort::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr Duration kPatience = milliseconds(400);
constexpr double kBounded = 15;  // seconds: the patience, farewells of 2 s, and a slow machine

class WorkerFailureTest : public GpuWorkerTest {
 protected:
  static ReplicaOptions options(int tp, int pp) {
    ReplicaOptions options = gpu_options(DType::f32, tp, pp);
    options.limits = {
        .max_slots = 2, .max_rows = 8, .max_context = 32, .blocks = 0, .in_flight = 0};
    options.gpu.graphs = false;
    return options;
  }
  static StepPlan one_step() {
    StepLimits limits = options(1, 1).limits;
    limits.blocks = 4;
    return make_schedule({{some_tokens(3, 1), 1, greedy(), 0}}, limits, {}).plans[0];
  }

  // Every rank makes one step with the patience that `before` gives it, or none. What became of
  // each. They are aborted when all of that is known, so that no rank ends because another one has.
  using Before = std::function<std::optional<Duration>(int rank)>;
  static std::vector<Status> step(int tp, int pp, const Before& before) {
    std::vector<Status> outcome(size_t(tp * pp));
    std::latch known(tp * pp);
    spawn_ranks(tp * pp, [&](World& world) {
      const int r = world.rank();
      const auto rank = load_tiny(world, options(tp, pp));
      try {
        if (const auto patience = before(r)) {
          rank->set_patience(*patience);
          outcome[size_t(r)] = rank->execute(one_step()).status();
        }
      } catch (const emu::Error& error) {
        ADD_FAILURE() << error.what;
      }
      known.arrive_and_wait();
      rank->abort(cancelled("the test is over"));
    });
    return outcome;
  }
};

TEST_F(WorkerFailureTest, E04_ARankThatNeverComesEndsTheOthersWithinTheirPatience) {
  for (const auto& [tp, pp] : {std::pair(2, 1), std::pair(1, 2), std::pair(2, 2)}) {
    SCOPED_TRACE(concat("tp ", tp, " pp ", pp));
    const TimePoint start = std::chrono::steady_clock::now();
    const auto outcome =
        step(tp, pp, [](int rank) { return rank != 0 ? std::optional(kPatience) : std::nullopt; });
    EXPECT_LT(seconds(std::chrono::steady_clock::now() - start), kBounded);
    for (int r = 1; r < tp * pp; r++)
      EXPECT_THAT(outcome[size_t(r)].message(),
                  AllOf(HasSubstr(concat("rank ", r, " on")), HasSubstr("step 1"),
                        HasSubstr(concat("nccl ", pp > 1 ? "pp" : "tp", " group"))));
  }
}

TEST_F(WorkerFailureTest, ACollectiveThatOneRankLeavesOutEndsTheOther) {
  // The last one, of logits: there is none that could be taken for it. Its parts differ in size.
  const auto outcome = step(2, 1, [](int rank) {
    for (int part = 0; part < 2 && rank == 1; part++) emu::drop_next("ncclBroadcast", 0, 1);
    return rank == 1 ? kStart : kPatience;  // rank 1 ends by itself, however slow the machine is
  });
  EXPECT_EQ(emu::planted(), 0u);
  EXPECT_EQ(outcome[0].code(), Code::kDeadlineExceeded);
  EXPECT_THAT(outcome[0].message(),
              AllOf(HasSubstr("rank 0 on"), HasSubstr("step 1"), HasSubstr("nccl tp group")));
  EXPECT_TRUE(outcome[1].ok()) << outcome[1].to_string();
}

TEST_F(WorkerFailureTest, ALostDeviceIsNamed) {
  const auto outcome = step(2, 1, [](int rank) {
    if (rank == 1) emu::lose_device(1);
    return kPatience;
  });
  EXPECT_THAT(outcome[1].message(), AllOf(HasSubstr("rank 1 on"), HasSubstr("device 1")));
  EXPECT_THAT(outcome[0].message(), AllOf(HasSubstr("rank 0 on"), HasSubstr("step 1")));
}

TEST_F(WorkerFailureTest, ALaunchThatFailsIsNamedWithItsPlace) {
  for (const int skip : {0, 3, 9}) {
    const auto outcome = step(1, 1, [&](int) {
      emu::fail_next("kernel launch", cudaErrorLaunchFailure, skip);
      return kPatience;
    });
    EXPECT_EQ(outcome[0].code(), Code::kInternal);
    EXPECT_THAT(outcome[0].message(),
                AllOf(HasSubstr("rank 0 on"), HasSubstr("step 1"),
                      HasSubstr("cudaErrorLaunchFailure"), HasSubstr("device 0")));
  }
}

// From less than one weight to enough: one rank at least tells what does not fit, the others that,
// or that it has gone.
TEST_F(WorkerFailureTest, MemoryThatDoesNotSufficeIsToldByAllRanks) {
  int loaded = 0, told = 0;
  for (const size_t kib : {16, 64, 128, 192, 256, 384, 512, 768, 65536}) {
    SCOPED_TRACE(concat(kib, " KiB"));
    emu::set_device_memory(kib << 10);
    std::vector<Status> outcome(2);
    spawn_ranks(2, [&](World& world) {
      TinyCheckpoint checkpoint(tiny_model(DType::q4_1));
      outcome[size_t(world.rank())] = Rank::load(world, checkpoint, options(2, 1), {}).status();
    });
    EXPECT_EQ(outcome[0].ok(), outcome[1].ok());
    loaded += outcome[0].ok();
    if (outcome[0].ok()) continue;
    told++;
    EXPECT_TRUE(outcome[0].code() == Code::kResourceExhausted ||
                outcome[1].code() == Code::kResourceExhausted);
    for (const Status& status : outcome) {
      EXPECT_THAT(status.message(), AnyOf(AllOf(HasSubstr("asked for"), HasSubstr("free on"),
                                                HasSubstr("--kv-memory")),
                                          HasSubstr("give it more memory or lower the context"),
                                          AllOf(HasSubstr("nccl tp group"), HasSubstr("aborted"))));
    }
  }
  EXPECT_GE(loaded, 1);
  EXPECT_GE(told, 4);
}

TEST_F(WorkerFailureTest, E04_TheWatchdogEndsAStepThatHangs) {
  ReplicaOptions hanging = options(2, 1);
  hanging.step_timeout = milliseconds(200);  // the first step gets six times that
  std::promise<void> noticed;
  const TimePoint start = std::chrono::steady_clock::now();
  run_replica(
      hanging,
      [&](Rank& rank, std::unique_ptr<ControlHub>& hub) {
        RankGroup group(rank, hub.get(), never);
        require_ok(group.submit(one_step()));
        const auto result = group.next_result();
        noticed.set_value();
        ASSERT_FALSE(result.ok());
        EXPECT_THAT(result.status().message(),
                    AllOf(HasSubstr("rank 0 on"), HasSubstr("step 1"), HasSubstr("nccl tp group")));
      },
      [&](Rank& rank, const std::unique_ptr<ControlLink>&) {
        // Alive, with heartbeats, but it never computes.
        EXPECT_EQ(noticed.get_future().wait_for(kStart), std::future_status::ready);
        rank.abort(cancelled("the test is over"));
      });
  EXPECT_LT(seconds(std::chrono::steady_clock::now() - start), kBounded);
}

}  // namespace
}  // namespace cohort::testing
