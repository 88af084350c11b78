// SPDX-License-Identifier: Apache-2.0
// Mistakes are planted in the calls that the worker makes: a missing edge between streams, a
// collective that one rank leaves out or makes too early, a host that does not wait. Each must be
// found, by results that are not those of the worker without mistakes, or by a report. What is
// never found is either not needed or not checked, so all that is known of it stands here.
#include <gmock/gmock.h>

#include "tests/cuda/worker_trials.h"
#include "tests/cuda_emulation/planting.h"

namespace cohort::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kCompute = 0, kTokens = 3, kCopy = 4;

struct Shape {
  int tp, pp;
  bool graphs;
};

class WorkerPlantedTest : public ::testing::TestWithParam<Shape> {
 protected:
  Trials trials_{GetParam().tp, GetParam().pp, GetParam().graphs};
  bool last_stage(int rank) const { return rank >= GetParam().tp * (GetParam().pp - 1); }

  void drop_each(const std::string& api, size_t step, const std::vector<int>& held,
                 const std::function<void(int rank, const std::string& found)>& judge) {
    const std::vector<int> calls = trials_.calls(api, step);
    for (int rank = 0; rank < trials_.ranks(); rank++)
      for (int nth = 0; nth < calls[size_t(rank)]; nth++) {
        const std::string found = trials_.find({.rank = rank, .step = step}, held,
                                               [&] { emu::drop_next(api, nth, rank); });
        SCOPED_TRACE(concat("rank ", rank, ", call ", nth, " of ", api, ": ", trials_.mistake()));
        judge(rank, found);
      }
  }
};

// Not needed: a token message's place is used again eight messages later, and by then the first
// stage has read it, since it leaves none unread for more than four steps. It is there for a
// change of either number.
bool is_spare(const std::string& mistake) {
  return mistake == concat("wait of stream ", kCompute, " for stream ", kTokens);
}

TEST_P(WorkerPlantedTest, EveryMissingEdgeIsFound) {
  drop_each("cudaStreamWaitEvent", Trials::kSteady,
            {Trials::kSource, Trials::kSource, Trials::kSource},
            [&](int rank, const std::string& found) {
              const bool spare = last_stage(rank) && is_spare(trials_.mistake());
              EXPECT_EQ(found.empty(), spare) << found;
            });
}

// Not checked here: the error codes of the step's one row are "none" in all steps.
TEST_P(WorkerPlantedTest, EveryMissingCopyIsFound) {
  drop_each("cudaMemcpyAsync", Trials::kSteady, {}, [&](int rank, const std::string& found) {
    const bool codes = rank == trials_.sampler() && trials_.mistake() == "copy of 4 bytes";
    EXPECT_EQ(found.empty(), codes) << found;
  });
}

TEST_P(WorkerPlantedTest, EveryCallOfNcclThatOneRankLeavesOutIsFound) {
  for (const std::string api :
       {"ncclAllReduce", "ncclAllGather", "ncclBroadcast", "ncclSend", "ncclRecv"})
    drop_each(api, Trials::kSteady, {}, [&](int, const std::string& found) {
      EXPECT_NE(found, "");
      const bool told = !found.starts_with("other results");  // by the emulation
      if (told) {
        EXPECT_THAT(found, AllOf(HasSubstr("nccl"), HasSubstr("rank")));
      }
      trials_.restart();  // its groups do not agree any more
    });
}

TEST_P(WorkerPlantedTest, EveryCallOfNcclInTheWrongOrderIsFound) {
  for (const std::string api : {"ncclAllReduce", "ncclSend", "ncclRecv"}) {
    const std::vector<int> calls = trials_.calls(api, Trials::kSteady);
    for (int rank = 0; rank < trials_.ranks(); rank++)
      for (int nth = 0; nth < calls[size_t(rank)]; nth++) {
        SCOPED_TRACE(concat("rank ", rank, ", call ", nth, " of ", api));
        EXPECT_NE(trials_.find({.rank = rank, .step = Trials::kSteady}, {},
                               [&] { emu::swap_next(api, nth, rank); }),
                  "");
        trials_.restart();
      }
  }
}

// Its page-locked memory is read too early, or written while a copy still reads it.
TEST_P(WorkerPlantedTest, AHostThatDoesNotWaitForAStepIsFound) {
  for (int rank = 0; rank < trials_.ranks(); rank++) {
    SCOPED_TRACE(concat("rank ", rank));
    EXPECT_NE(trials_.find({.rank = rank, .step = Trials::kSteady, .collect = true},
                           {kCopy, kCompute}, [&] { emu::drop_next("cudaEventQuery", 0, rank); }),
              "");
  }
}

std::string name_of(const ::testing::TestParamInfo<Shape>& info) {
  return concat("tp", info.param.tp, "_pp", info.param.pp, info.param.graphs ? "_graphs" : "");
}
INSTANTIATE_TEST_SUITE_P(Layouts, WorkerPlantedTest,
                         ::testing::Values(Shape{2, 1, false}, Shape{2, 2, false},
                                           Shape{2, 1, true}, Shape{2, 2, true}),
                         name_of);

// The step that runs once and is captured then: its first edges are of the run, the others of the
// capture, which fails itself, or gives other results in the steps after it.
TEST(WorkerPlantedCaptureTest, EveryEdgeMissingInACaptureIsFound) {
  Trials trials(2, 1, true);
  trials.restart();
  const std::vector<int> calls = trials.calls("cudaStreamWaitEvent", Trials::kFirstDecode);
  trials.restart();
  const std::vector<int> steady = trials.calls("cudaStreamWaitEvent", Trials::kSteady);
  for (int rank = 0; rank < trials.ranks(); rank++) {
    const int captured = (calls[size_t(rank)] - steady[size_t(rank)]) / 2;
    EXPECT_GE(captured, 8);
    for (int nth = 0; nth < calls[size_t(rank)]; nth++) {
      const std::string found =
          trials.find({.rank = rank, .step = Trials::kFirstDecode, .fresh = true},
                      {Trials::kSource, Trials::kSource, Trials::kSource},
                      [&] { emu::drop_next("cudaStreamWaitEvent", nth, rank); });
      EXPECT_NE(found, "") << "rank " << rank << ", call " << nth << ": " << trials.mistake();
    }
  }
}

}  // namespace
}  // namespace cohort::testing
