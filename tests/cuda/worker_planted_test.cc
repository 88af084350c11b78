// SPDX-License-Identifier: Apache-2.0
// Mistakes are planted in the calls that the worker makes: a missing edge between streams, a
// collective that one rank leaves out or makes too early, a host that does not wait. Each must be
// found, by results that are not those of the worker without mistakes, or by a report. What is
// never found is either not needed or not checked, so all that is known of it stands here.
#include <cstdlib>
#include <set>

#include "tests/cuda/worker_trials.h"
#include "tests/cuda_emulation/planting.h"

namespace cohort::testing {
namespace {

constexpr int kCompute = 0, kTokens = 3, kCopy = 4;
const std::vector<int> kEachStream = {0, 1, 2, 3, 4};

struct Shape {
  int tp, pp;
  bool graphs;
};

bool all_cases() { return std::getenv("COHORT_ALL_SCHEDULES") != nullptr; }

class WorkerPlantedTest : public ::testing::TestWithParam<Shape> {
 protected:
  Trials trials_{GetParam().tp, GetParam().pp, GetParam().graphs};
  bool last_stage(int rank) const { return rank >= GetParam().tp * (GetParam().pp - 1); }

  // One of each kind, or all.
  std::set<int> ranks() const {
    std::set<int> ranks = {0, trials_.sampler(), trials_.ranks() - 1};
    for (int rank = 0; all_cases() && rank < trials_.ranks(); rank++) ranks.insert(rank);
    return ranks;
  }

  // plant: emu::drop_next or emu::swap_next, for each call of these ranks in a steady step.
  void plant_each(void (*plant)(const std::string& api, int skip, int device),
                  const std::string& api, const std::vector<int>& held,
                  const std::function<void(int rank, const std::string& found)>& judge) {
    const std::vector<int> calls = trials_.calls(api, Trials::kSteady);
    for (const int rank : ranks())
      for (int nth = 0; nth < calls[size_t(rank)]; nth++) {
        const std::string found = trials_.find({.rank = rank, .step = Trials::kSteady}, held,
                                               [&] { plant(api, nth, rank); });
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
  plant_each(emu::drop_next, "cudaStreamWaitEvent", std::vector<int>(8, Trials::kSource),
             [&](int rank, const std::string& found) {
               const bool spare = last_stage(rank) && is_spare(trials_.mistake());
               EXPECT_EQ(found.empty(), spare) << found;
             });
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
// What is around a captured step is the same as around one that is not.
std::vector<Shape> shapes() {
  std::vector<Shape> shapes = {{2, 1, false}, {2, 2, false}};
  if (all_cases()) shapes.push_back({2, 2, true});
  return shapes;
}
INSTANTIATE_TEST_SUITE_P(Layouts, WorkerPlantedTest, ::testing::ValuesIn(shapes()), name_of);

class WorkerPlantedCallTest : public WorkerPlantedTest {};

// Not checked here: the error codes of the step's one row are "none" in all steps.
TEST_P(WorkerPlantedCallTest, EveryMissingCopyIsFound) {
  plant_each(emu::drop_next, "cudaMemcpyAsync", {}, [&](int rank, const std::string& found) {
    const bool codes = rank == trials_.sampler() && trials_.mistake() == "copy of 4 bytes";
    EXPECT_EQ(found.empty(), codes) << found;
  });
}

TEST_P(WorkerPlantedCallTest, EveryCallOfNcclThatOneRankLeavesOutIsFound) {
  for (const std::string api :
       {"ncclAllReduce", "ncclAllGather", "ncclBroadcast", "ncclSend", "ncclRecv"})
    plant_each(emu::drop_next, api, {}, [&](int, const std::string& found) {
      EXPECT_NE(found, "");
      // Where the emulation tells it, it names whose call of what waits, or does not fit.
      const bool told = !found.starts_with("other results");
      EXPECT_EQ(told, told && found.find("nccl") != std::string::npos &&
                          found.find("rank") != std::string::npos)
          << found;
      trials_.restart();  // its groups do not agree any more
    });
}

// A send that comes after the rank's next call is no mistake: its stream and its memory are its
// own.
TEST_P(WorkerPlantedCallTest, EveryCallOfNcclInTheWrongOrderIsFound) {
  for (const std::string api : {"ncclAllReduce", "ncclRecv"})
    plant_each(emu::swap_next, api, kEachStream, [&](int, const std::string& found) {
      EXPECT_NE(found, "");
      trials_.restart();
    });
}

INSTANTIATE_TEST_SUITE_P(Layouts, WorkerPlantedCallTest, ::testing::Values(Shape{2, 2, false}),
                         name_of);

// The step that runs once and is captured then: the capture fails, or gives other results in the
// steps after it.
TEST(WorkerPlantedCaptureTest, EveryEdgeMissingInACaptureIsFound) {
  Trials trials(2, 1, true);
  trials.restart();
  const int all = trials.calls("cudaStreamWaitEvent", Trials::kFirstDecode)[1];
  const int outside = trials.calls("cudaStreamWaitEvent", Trials::kSteady)[1];
  const int captured = (all - outside) / 2;
  EXPECT_GE(captured, 8);  // to comm and back: embedding, attention, feed-forward, head
  for (int nth = all - captured; nth < all; nth++) {
    const std::string found =
        trials.find({.rank = 1, .step = Trials::kFirstDecode, .fresh = true}, {Trials::kSource},
                    [&] { emu::drop_next("cudaStreamWaitEvent", nth, 1); });
    EXPECT_NE(found, "") << "call " << nth << ": " << trials.mistake();
  }
}

}  // namespace
}  // namespace cohort::testing
