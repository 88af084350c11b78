// SPDX-License-Identifier: Apache-2.0
// The model learns machines that are simulated here, collective by collective, and is then asked
// what it would do; what is right, the simulation says.
#include "worker/split_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "worker/lanes.h"

namespace cohort {
namespace {

struct Machine {
  double weights = 0.010;    // seconds to read all weights: a pass takes that at least
  double row = 0.0002;       // seconds to compute a row
  double call = 20e-6;       // seconds of a collective
  double byte = 1e-9;        // and of each of its bytes
  double turn = 10e-6;       // lost at each collective of a step that is cut
  int calls = 64;            // collectives of a pass
  int64_t row_bytes = 8192;  // of each collective
};

// Runs the pieces and collectives of a step one by one: one thread computes, one communicates.
StepTimes run(const Machine& m, int64_t rows, int lanes) {
  double step_thread = 0, line = 0, busy = 0, computed = 0, idle = 0;
  std::vector<double> ready(size_t(lanes), 0);  // when the lane's collective is done
  StepTimes step;
  for (int call = 0; call < m.calls; call++)
    for (int lane = 0; lane < lanes; lane++) {
      idle += std::max(0.0, ready[size_t(lane)] - step_thread);
      step_thread = std::max(step_thread, ready[size_t(lane)]);
      const double mine = double(lane_rows(rows, lanes, lane).size());
      const double piece = (m.weights + m.row * mine) / m.calls + (lanes > 1 ? m.turn : 0);
      step_thread += piece;
      computed += piece;
      const double took = m.call + m.byte * double(m.row_bytes) * mine;
      line = std::max(line, step_thread) + took;
      busy += took;
      ready[size_t(lane)] = line;
    }
  idle += std::max(0.0, line - step_thread);
  step.compute = computed;
  step.idle = idle;
  step.communication = busy;
  step.hidden = busy - idle;
  step.bytes_sent = m.calls * m.row_bytes * rows;
  step.groups[size_t(GroupKind::tp)] = {int64_t(m.calls) * lanes, step.bytes_sent, busy,
                                        step.hidden};
  step.steps = 1;
  step.rows = rows;
  step.micro_batches = lanes;
  return step;
}

// What a replica does: decodes of different sizes, prompts between them.
SplitModel taught(const Machine& m) {
  SplitModel model;
  for (int i = 0; i < 60; i++) {
    const int64_t rows = i % 4 == 3 ? 256 : 1 + i % 7;
    model.learn(run(m, rows, model.micro_batches(rows)));
  }
  return model;
}

double gain(const Machine& m, int64_t rows) {
  return 1 - run(m, rows, 2).seconds() / run(m, rows, 1).seconds();
}

TEST(SplitModelTest, KnowsNothingAtFirstAndDoesNotSplit) {
  SplitModel model;
  EXPECT_EQ(model.micro_batches(256), 1);
  model.learn(run({.byte = 1e-6}, 256, 1));
  EXPECT_EQ(model.micro_batches(256), 1);
}

// A replica that has seen nothing but prompts of one length cuts them where that pays.
TEST(SplitModelTest, StepsOfOneSizeAreEnoughWhereTheGainIsLarge) {
  for (double byte : {1e-12, 4e-10}) {
    const Machine m{.byte = byte};
    SplitModel model;
    for (int i = 0; i < 10; i++) model.learn(run(m, 256, 1));
    EXPECT_EQ(model.micro_batches(256), gain(m, 256) > 0.05 ? 2 : 1) << byte;
  }
}

// Weights that take longer to read than is assumed: cutting loses, which is noticed.
TEST(SplitModelTest, AWrongAssumptionIsGivenUp) {
  const Machine m{.weights = 0.1, .byte = 4e-10};
  ASSERT_LT(gain(m, 64), 0);
  SplitModel model;
  int cut = 0;
  for (int i = 0; i < 100; i++) {
    const int lanes = model.micro_batches(64);
    cut += lanes == 2;
    model.learn(run(m, 64, lanes));
  }
  EXPECT_EQ(model.micro_batches(64), 1);
  EXPECT_LT(cut, 20);
}

TEST(SplitModelTest, AFastLinkIsNeverWorthIt) {
  const Machine m{.call = 2e-6, .byte = 1e-12};
  const SplitModel model = taught(m);
  for (int64_t rows : {1, 2, 8, 64, 256}) {
    EXPECT_LT(gain(m, rows), 0.05);
    EXPECT_EQ(model.micro_batches(rows), 1) << rows;
  }
}

TEST(SplitModelTest, ASlowLinkIsHiddenBehindAPromptAndNotBehindAFewDecodes) {
  const Machine m{.byte = 4e-10};
  const SplitModel model = taught(m);
  EXPECT_GT(gain(m, 256), 0.1);
  EXPECT_EQ(model.micro_batches(256), 2);
  EXPECT_LT(gain(m, 4), 0);
  for (int64_t rows : {1, 2, 4}) EXPECT_EQ(model.micro_batches(rows), 1) << rows;
}

TEST(SplitModelTest, OneRowIsNeverCut) {
  EXPECT_EQ(taught({.weights = 0, .byte = 1e-6}).micro_batches(1), 1);
}

// Over a range of machines, links and sizes: what is chosen is never much slower than the other.
TEST(SplitModelTest, TheChoiceIsNeverMuchWorseThanTheBest) {
  int split = 0, whole = 0;
  for (double byte : {1e-12, 1e-11, 1e-10, 4e-10, 1e-9, 1e-8})
    for (double call : {2e-6, 50e-6, 1e-3})
      for (double weights : {0.0005, 0.01, 0.1}) {
        const Machine m{.weights = weights, .call = call, .byte = byte};
        const SplitModel model = taught(m);
        for (int64_t rows : {2, 4, 32, 256}) {
          const int chosen = model.micro_batches(rows);
          (chosen == 2 ? split : whole)++;
          const double took = run(m, rows, chosen).seconds();
          const double best = std::min(run(m, rows, 1).seconds(), run(m, rows, 2).seconds());
          EXPECT_LE(took, 1.08 * best) << "byte " << byte << " call " << call << " weights "
                                       << weights << " rows " << rows << " chosen " << chosen;
        }
      }
  EXPECT_GT(split, 20);
  EXPECT_GT(whole, 20);
}

TEST(SplitModelTest, PredictsWhatTheSimulationSays) {
  const Machine m{.byte = 5e-10};
  SplitModel model;
  for (int i = 0; i < 40; i++) model.learn(run(m, i % 2 == 0 ? 16 : 200, 1));
  for (int64_t rows : {2, 20, 100, 256}) {
    EXPECT_NEAR(model.whole_seconds(rows), run(m, rows, 1).seconds(), 1e-9);
    const double split = run(m, rows, 2).seconds();
    EXPECT_NEAR(model.split_seconds(rows), split, 0.03 * split);
  }
}

// A host without a core to spare for the line's thread: turns cost more than they hide.
TEST(SplitModelTest, StopsWhereTurnsTurnOutToCostTooMuch) {
  const Machine cheap{.byte = 4e-10};
  Machine dear = cheap;
  dear.turn = 0.004;
  SplitModel model = taught(cheap);
  ASSERT_EQ(model.micro_batches(256), 2);
  int cut = 0;
  for (int i = 0; i < 200; i++) {
    const int lanes = model.micro_batches(256);
    cut += lanes == 2;
    model.learn(run(dear, 256, lanes));
  }
  EXPECT_EQ(model.micro_batches(256), 1);
  EXPECT_LT(cut, 50);
}

TEST(SplitPolicyTest, ObeysWhatWasAskedFor) {
  StepLimits limits;
  limits.max_slots = 4;
  StepTimesBoard times;
  StepPlan one, two;
  one.entries.resize(1);
  one.entries[0].length = 1;
  two.entries.resize(2);
  two.entries[0].length = two.entries[1].length = 1;
  const auto ask = [&](Overlap overlap, bool can_split, const StepPlan& plan) {
    return split_policy(overlap, can_split, limits, times)(plan);
  };
  EXPECT_EQ(ask(Overlap::on, true, one), 1);
  EXPECT_EQ(ask(Overlap::on, true, two), 2);
  EXPECT_EQ(ask(Overlap::on, false, two), 1);
  EXPECT_EQ(ask(Overlap::off, true, two), 1);
  EXPECT_EQ(ask(Overlap::automatic, true, two), 1);
}

TEST(SplitPolicyTest, LearnsFromTheBoard) {
  StepLimits limits;
  StepTimesBoard times;
  const auto policy = split_policy(Overlap::automatic, true, limits, times);
  StepPlan plan;
  plan.entries.resize(1);
  plan.entries[0].length = 256;
  const Machine m{.byte = 4e-10};
  for (int i = 0; i < 40; i++) {
    plan.entries[0].length = i % 2 == 0 ? 3 : 256;
    times.add(run(m, plan.entries[0].length, policy(plan)));
  }
  plan.entries[0].length = 256;
  EXPECT_EQ(policy(plan), 2);
  plan.entries[0].length = 3;
  EXPECT_EQ(policy(plan), 1);
}

}  // namespace
}  // namespace cohort
