// SPDX-License-Identifier: Apache-2.0
// A rank that skips, repeats, shortens or mistakes a collective of a step: the step ends on all
// ranks, and the errors name the step, the layer, the collective and both ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <thread>

#include "tests/support/mistaken_communicator.h"
#include "tests/support/replay.h"
#include "tests/support/slow_communicator.h"
#include "tests/support/spawn_ranks.h"
#include "tests/support/tiny_checkpoint.h"
#include "tests/worker/requests.h"
#include "worker/rank.h"
#include "worker/where.h"

namespace cohort::testing {
namespace {

using ::testing::HasSubstr;

constexpr Duration kPatience = std::chrono::seconds(2);
// How long the others are left alone when a rank has failed.
constexpr Duration kGrace = std::chrono::milliseconds(600);

struct Model {
  ReplicaOptions options;
  OpenCheckpoint open;
};

Model experts() {
  Model model{tiny_options(2, 1), {}};
  model.options.model = "tests/data/tiny_models/qwen3_moe";
  model.options.layout.dp = 2;
  model.open = [path = model.options.model] {
    return std::shared_ptr<Checkpoint>(require_ok(Checkpoint::open(path)));
  };
  return model;
}

Model dense() {
  return {tiny_options(2, 2),
          [] { return std::make_shared<TinyCheckpoint>(tiny_model(DType::q4_1)); }};
}

// Three steps in which every dp group has the same to do: first prompts, then single tokens.
std::vector<StepPlan> plans_for(const ReplicaOptions& options, int micro_batches) {
  StepLimits limits = options.limits;
  limits.blocks = limits.max_slots * ((limits.max_context + kBlockTokens - 1) / kBlockTokens);
  std::vector<StepPlan> plans =
      make_schedule({{some_tokens(9, 1), 3, greedy(), 0}, {some_tokens(6, 2), 3, greedy(), 0}},
                    limits, {})
          .plans;
  for (StepPlan& plan : plans) {
    plan.micro_batches = micro_batches;
    const std::vector<StepEntry> entries = plan.entries;
    for (int dp = 1; dp < options.layout.dp; dp++)
      for (StepEntry entry : entries) {
        entry.slot += dp * limits.max_slots;
        plan.entries.push_back(std::move(entry));
      }
  }
  chain(plans);
  return plans;
}

// Who makes the mistake, and in which group.
struct Culprit {
  int rank;
  std::string group;
  int peer;  // the other rank of the group
};

// The ranks of one replica. What one of them fails with ends the others, as in a worker, but only
// when the culprit and its peer have had time to notice it themselves.
class Replica {
 public:
  explicit Replica(const Culprit& culprit, bool tell)
      : culprit_(culprit), tell_(tell), errors_(4), ranks_(4) {}

  void run(const Model& model, int micro_batches, Mistaken& mistaken) {
    spawn_ranks(
        4,
        [&](World& world) {
          WrappedWorld wrapped(world,
                               [&](std::unique_ptr<Communicator> made,
                                   const std::string& label) -> std::unique_ptr<Communicator> {
                                 if (world.rank() != culprit_.rank || label != culprit_.group)
                                   return made;
                                 return std::make_unique<MistakenCommunicator>(std::move(made),
                                                                               mistaken);
                               });
          const auto checkpoint = model.open();
          const auto rank = require_ok(Rank::load(wrapped, *checkpoint, model.options, {}));
          rank->set_patience(kPatience);
          enter(*rank);
          Status status;
          for (const StepPlan& plan : plans_for(model.options, micro_batches))
            if (status.ok()) status = rank->execute(plan).status();
          leave(*rank, status);
        },
        std::chrono::seconds(60));
  }

  const std::vector<Status>& errors() const { return errors_; }

 private:
  void enter(Rank& rank) {
    std::unique_lock lock(mutex_);
    ranks_[size_t(rank.rank())] = &rank;
    entered_++;
    changed_.notify_all();
    changed_.wait(lock, [&] { return entered_ == 4; });
  }
  void leave(Rank& rank, const Status& status) {
    std::unique_lock lock(mutex_);
    errors_[size_t(rank.rank())] = status;
    left_++;
    changed_.notify_all();
    const auto seen = [&] {
      return left_ == 4 || (failed(culprit_.rank) && failed(culprit_.peer));
    };
    if (tell_ && !status.ok()) {
      changed_.wait_for(lock, kGrace, seen);
      if (left_ < 4)  // else they may be gone
        for (Rank* other : ranks_) other->abort(cancelled("told to end"));
    }
    changed_.wait(lock, [&] { return left_ == 4; });
  }
  bool failed(int rank) const { return !errors_[size_t(rank)].ok(); }

  const Culprit culprit_;
  const bool tell_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Status> errors_;  // guarded by mutex_, as all below
  std::vector<Rank*> ranks_;
  int entered_ = 0, left_ = 0;
};

bool names(const std::string& text, const Culprit& culprit, const Mistaken& mistaken) {
  const auto has = [&](const std::string& part) { return text.find(part) != std::string::npos; };
  const bool message = culprit.group == "pp";  // whose two ends are in different places
  return has(" step 1 (") && has(concat("rank ", culprit.rank, " on ")) &&
         has(concat("rank ", culprit.peer, " on ")) &&
         (message ? has("bytes in step 1 (") && has(" of activations ")
                  : has(concat(mistaken.verb, " ")) &&
                        has("(" + Where::text_of_place(mistaken.mark.place)));
}

// False where there is no such verb.
bool expect_named(const Model& model, int micro_batches, const Culprit& culprit,
                  Mistaken mistaken) {
  Replica replica(culprit, true);
  replica.run(model, micro_batches, mistaken);
  if (!mistaken.made) return false;
  SCOPED_TRACE(concat("mistake ", int(mistaken.mistake), " in ", mistaken.verb, ", ",
                      Where::text_of_place(mistaken.mark.place)));
  bool named = false;
  std::string all;
  for (const Status& error : replica.errors()) {
    EXPECT_FALSE(error.ok());
    named = named || names(error.message(), culprit, mistaken);
    all += error.to_string() + "\n";
  }
  EXPECT_TRUE(named) << all;
  return true;
}

// Every mistake in every verb of step 1, of which there are so many; replicas mostly wait, so
// those of different mistakes do it together.
void expect_all_named(const Model& model, int micro_batches, const Culprit& culprit,
                      const std::vector<Mistake>& mistakes, int64_t verbs) {
  std::vector<std::thread> threads;
  for (const Mistake mistake : mistakes)
    threads.emplace_back([&, mistake] {
      Mistaken mistaken{.mistake = mistake};
      while (expect_named(model, micro_batches, culprit, mistaken)) mistaken.call++;
      EXPECT_EQ(mistaken.call, verbs);
    });
  for (std::thread& thread : threads) thread.join();
}

const std::vector<Mistake> kAll = {Mistake::skipped, Mistake::repeated, Mistake::shrunk,
                                   Mistake::other_verb};

TEST(MarkTest, SaysStepOperationLayerAndMicroBatch) {
  Where where;
  EXPECT_EQ(where.mark(), Mark{}) << "while ranks load there is no step";
  EXPECT_EQ(Where::text_of_place(where.mark().place), "");
  where.begin_step(41);
  where.set(Operation::attention_output, 17);
  EXPECT_EQ(where.mark().step, 41u);
  EXPECT_EQ(Where::text_of_place(where.mark().place),
            "attention output and its all-reduce tp, layer 17");
  where.restore(where.word(), 1);
  where.set(Operation::combine, 3);
  EXPECT_EQ(Where::text_of_place(where.mark().place),
            "return of rows from experts, dp, layer 3, micro-batch 2");
  EXPECT_EQ(where.text(), "return of rows from experts, dp, layer 3");
  where.restore(where.word(), 0);
  where.set(Operation::head);
  EXPECT_EQ(Where::text_of_place(where.mark().place), "head and its all-gather tp");
}

// Embedding, two of each of three layers, and two of sampling: candidates, and a row whose logits
// are needed whole, since blocks of so small a vocabulary lie on both ranks.
TEST(MismatchTest, WithExpertsInTheGroupOfTensorParallelRanks) {
  expect_all_named(experts(), 1, {1, "tp", 0}, kAll, 9);
}

TEST(MismatchTest, WithExpertsInTheGroupThatExchangesRows) {
  expect_all_named(experts(), 1, {3, "dp", 1}, kAll, 2);
}

// As above for each half, but only one of them samples.
TEST(MismatchTest, WithExpertsAndTwoMicroBatches) {
  expect_all_named(experts(), 2, {1, "tp", 0}, {Mistake::skipped, Mistake::shrunk}, 16);
  expect_all_named(experts(), 2, {3, "dp", 1}, {Mistake::skipped, Mistake::other_verb}, 4);
}

// The embedding and two layers; one layer and sampling, as above.
TEST(MismatchTest, InADenseModelOfTwoStages) {
  expect_all_named(dense(), 1, {1, "tp", 0}, kAll, 5);
  expect_all_named(dense(), 1, {3, "tp", 2}, {Mistake::skipped, Mistake::shrunk}, 4);
}

TEST(MismatchTest, InMessagesBetweenStages) {
  const std::vector<Mistake> mistakes = {Mistake::skipped, Mistake::shrunk};
  expect_all_named(dense(), 1, {1, "pp", 3}, mistakes, 1);  // sends
  expect_all_named(dense(), 1, {3, "pp", 1}, mistakes, 1);  // receives
}

// Ranks that see nothing of it end, too, when nobody tells them, and say what they waited for.
TEST(MismatchTest, RanksBesideItEndByThemselves) {
  for (const Model& model : {experts(), dense()}) {
    Mistaken mistaken{.mistake = Mistake::skipped, .call = 2};
    Replica replica({1, "tp", 0}, false);
    const TimePoint start = std::chrono::steady_clock::now();
    replica.run(model, 1, mistaken);
    EXPECT_LT(std::chrono::steady_clock::now() - start, 5 * kPatience);
    for (const Status& error : replica.errors()) {
      ASSERT_FALSE(error.ok());
      EXPECT_THAT(error.message(), HasSubstr(" step 1 ("));
      EXPECT_THAT(error.message(), HasSubstr("this rank"));
    }
  }
}

}  // namespace
}  // namespace cohort::testing
