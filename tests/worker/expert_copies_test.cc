// SPDX-License-Identifier: Apache-2.0
// The whole loop of hot experts, in one process: ranks count what their tokens choose and tell the
// leader, it makes copies, and the ranks that take them up compute the same tokens as before.
#include <atomic>
#include <numeric>
#include <thread>

#include "tests/worker/leader/event_collector.h"
#include "tests/worker/local_replica.h"
#include "tests/worker/requests.h"
#include "worker/leader/batch_loop.h"
#include "worker/leader/expert_board.h"
#include "worker/rank_group.h"

namespace cohort::testing {
namespace {

constexpr Duration kAnswer = std::chrono::seconds(60);

ReplicaOptions options_of(int tp, int pp, int dp) {
  ReplicaOptions options = tiny_options(tp, pp);
  options.model = "tests/data/tiny_models/olmoe";
  options.layout.dp = dp;
  return options;
}

ExpertOwners owners_of(const Rank& rank) {
  ExpertOwners owners{.tp = rank.mesh().tp(),
                      .dp = rank.mesh().dp(),
                      .experts = int(rank.config().experts.count),
                      .layers = {},
                      .owned = rank.partition().experts};
  for (int64_t layer = 0; layer < rank.config().layers; layer++)
    if (rank.config().experts.in_layer(layer)) owners.layers.push_back(int32_t(layer));
  return owners;
}

// Prompts of one token over and over: whatever experts it likes are hot.
std::vector<TestRequest> skewed_requests() {
  std::vector<TestRequest> requests;
  for (int i = 0; i < 6; i++) {
    std::vector<int32_t> prompt(size_t(30 + i), 17);
    prompt[0] = int32_t(i);  // so that none is in the prefix cache at once
    requests.push_back({prompt, 6, greedy(), 0});
  }
  return requests;
}

// A replica whose leader makes copies.
class CopyingReplica {
 public:
  CopyingReplica(Rank& rank, ControlHub* hub, int micro_batches)
      : board_(owners_of(rank), impatient(), true),
        group_(rank, hub, never,
               [this](const ExpertLoad& load) {
                 reports_++;
                 return board_.add(load);
               }),
        loop_(group_, events_, loop_options(micro_batches)) {
    loop_.start();
  }

  // The same requests again and again, until copies have been made and used.
  void serve(uint32_t least_rounds) {
    const Deadline deadline = Deadline::after(kAnswer);
    while ((rounds < least_rounds || rounds < enough_) && !deadline.expired()) {
      const auto all = skewed_requests();
      rounds++;
      for (size_t i = 0; i < all.size(); i++)
        require_ok(loop_.submit({.id = {i, rounds},
                                 .prompt = all[i].prompt,
                                 .output_prefix = {},
                                 .sampling = all[i].sampling,
                                 .max_tokens = all[i].outputs,
                                 .salt = concat(rounds)}));
      ASSERT_TRUE(events_.wait_for_ends(rounds * all.size(), kAnswer));
    }
  }
  // Waits for what is told when the ranks have nothing to do.
  ExpertReport report_of(uint64_t tokens) {
    const Deadline deadline = Deadline::after(kAnswer);
    ExpertReport report = board_.report();
    while (!deadline.expired() && sum(report) < tokens) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      report = board_.report();
    }
    return report;
  }
  static uint64_t sum(const ExpertReport& report) {
    uint64_t n = 0;
    for (const auto& layer : report.layers)
      n += std::accumulate(layer.tokens.begin(), layer.tokens.end(), uint64_t{0});
    return n;
  }
  void stop() {
    loop_.stop();
    require_ok(loop_.wait());
  }
  std::vector<int32_t> output(size_t request, uint32_t round) const {
    return events_.outputs().at({request, round});
  }

  uint32_t rounds = 0;
  int64_t rows = 0, adds = 0;  // of the plans so far; read when the loop has ended

 private:
  static BalancerOptions impatient() {
    BalancerOptions options;
    options.least_rows = 16;
    options.interval = std::chrono::milliseconds(50);
    return options;
  }
  BatchLoopOptions loop_options(int micro_batches) {
    BatchLoopOptions options;
    options.split = [this, micro_batches](const StepPlan& plan) {
      rows += plan.rows();
      return micro_batches;
    };
    options.copies = [this] {
      const auto copies = board_.next_copies();
      for (const ExpertCopy& copy : copies) adds += copy.add;
      if (enough_ == kMany && adds > 0) enough_ = rounds + 3;
      return copies;
    };
    return options;
  }
  static constexpr uint32_t kMany = 1 << 20;

  ExpertBoard board_;
  EventCollector events_;
  std::atomic<int> reports_{0};
  std::atomic<uint32_t> enough_{kMany};
  RankGroup group_;
  BatchLoop loop_;
};

void serve_with_copies(const ReplicaOptions& options, int micro_batches) {
  std::vector<std::vector<int32_t>> alone;
  const ReplicaOptions one = options_of(1, 1, 1);
  for (const TestRequest& request : skewed_requests()) {
    alone.emplace_back();
    const auto outputs = generate([&] { return open_tiny(one); }, one, {request});
    for (const SampledToken& token : outputs[0].tokens) alone.back().push_back(token.token);
  }
  run_replica(
      options,
      [&](Rank& rank, std::unique_ptr<ControlHub>& hub) {
        CopyingReplica replica(rank, hub.get(), micro_batches);
        replica.serve(4);
        replica.stop();
        EXPECT_GT(replica.adds, 0);
        for (uint32_t round = 1; round <= replica.rounds; round++)
          for (size_t i = 0; i < alone.size(); i++)
            EXPECT_EQ(replica.output(i, round), alone[i]) << i << " in round " << round;
        // Every row of every layer, all of which have experts, has chosen its experts, whichever
        // rank told it.
        const ExpertsConfig& experts = rank.config().experts;
        const auto chosen = uint64_t(replica.rows * experts.per_token * rank.config().layers);
        const ExpertReport report = replica.report_of(chosen);
        EXPECT_EQ(CopyingReplica::sum(report), chosen);
        EXPECT_EQ(report.layers.size(), size_t(rank.config().layers));
        EXPECT_GT(report.copies, 0);
        EXPECT_GE(report.imbalance, 1);
      },
      [](Rank& rank, std::unique_ptr<ControlLink> link) {
        EXPECT_EQ(run_rank_loop(rank, *link, never), kExitDone);
      });
}

TEST(ExpertCopies, E11_HotExpertsGetCopiesAndNoBitChanges) {
  serve_with_copies(options_of(1, 1, 2), 1);
}

TEST(ExpertCopies, E11_WithTwoMicroBatchesStagesAndColumns) {
  ReplicaOptions options = options_of(2, 2, 2);
  options.overlap = Overlap::on;
  serve_with_copies(options, 2);
}

}  // namespace
}  // namespace cohort::testing
