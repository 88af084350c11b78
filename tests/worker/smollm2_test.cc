// SPDX-License-Identifier: Apache-2.0
// SmolLM2-135M (Q4_1) along greedy continuations by transformers (tests/data/smollm2_greedy.json):
// each token is predicted from the reference's own prefix, so that one close call cannot hide the
// rest. The prefix's keys and values are reused from step to step, as by a prefix cache.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "kernels/kv_layout.h"
#include "tests/support/replay.h"
#include "tests/support/spawn_ranks.h"
#include "tests/worker/requests.h"

namespace cohort::testing {
namespace {

constexpr int kBlocksPerCase = 16;

std::string model_path() {
  const char* models = std::getenv("COHORT_MODELS");
  const char* home = std::getenv("HOME");
  const std::filesystem::path folder =
      models != nullptr ? models : std::filesystem::path(home ? home : "") / ".cache/cohort";
  return (folder / "SmolLM2-135M-Instruct.Q4_1.gguf").string();
}

struct Case {
  std::vector<int32_t> prompt, tokens;
  std::vector<double> logprob, top1, top2;
};

std::vector<Case> read_cases() {
  std::vector<Case> cases;
  const auto json = nlohmann::json::parse(std::ifstream("tests/data/smollm2_greedy.json"));
  for (const auto& c : json["cases"])
    cases.push_back({c["prompt_ids"], c["tokens"], c["logprob"], c["top1"], c["top2"]});
  return cases;
}

// Predicts token k of case c from the prompt and k reference tokens; only position `start` on is
// computed.
StepEntry predict(const Case& c, int32_t slot, size_t k, int32_t start) {
  NewSequence sequence{c.prompt, int32_t(c.prompt.size()), greedy(0)};
  sequence.tokens.insert(sequence.tokens.end(), c.tokens.begin(), c.tokens.begin() + int64_t(k));
  std::vector<int32_t> blocks;
  for (int32_t b = 0; b < kBlocksPerCase; b++) blocks.push_back(slot * kBlocksPerCase + b);
  const int32_t length = int32_t(sequence.tokens.size()) - start;
  return {.slot = slot,
          .start = start,
          .length = length,
          .sample = true,
          .new_blocks = std::move(blocks),
          .sequence = std::move(sequence)};
}

// Each case's prompt in a step of its own, then one token of all cases in every step.
std::vector<StepPlan> teacher_forced(const std::vector<Case>& cases) {
  std::vector<StepPlan> plans;
  for (size_t c = 0; c < cases.size(); c++) {
    StepPlan plan;
    plan.entries.push_back(predict(cases[c], int32_t(c), 0, 0));
    plans.push_back(std::move(plan));
  }
  for (size_t k = 1; k < cases[0].tokens.size(); k++) {
    StepPlan plan;
    for (size_t c = 0; c < cases.size(); c++) {
      plan.frees.push_back(int32_t(c));
      plan.entries.push_back(
          predict(cases[c], int32_t(c), k, int32_t(cases[c].prompt.size() + k) - 1));
    }
    plans.push_back(std::move(plan));
  }
  chain(plans);
  return plans;
}

void compare(ReplicaOptions options, double margin, double largest_allowed) {
  const std::string path = model_path();
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "not here: " << path;
  const std::vector<Case> cases = read_cases();
  ASSERT_EQ(cases.size(), 8u);
  options.isa = detect_isa();
  options.limits = {.max_slots = 8,
                    .max_rows = 128,
                    .max_context = kBlocksPerCase * kBlockTokens,
                    .blocks = 0,
                    .in_flight = 0};
  const auto open = [&] { return std::shared_ptr<Checkpoint>(require_ok(Checkpoint::open(path))); };
  const auto results = run_plans(open, options, teacher_forced(cases));
  std::vector<size_t> next(cases.size(), 0);
  int compared = 0;
  double largest = 0;
  for (const StepResult& result : results)
    for (const SlotResult& slot : result.slots) {
      const Case& c = cases[size_t(slot.slot)];
      const size_t k = next[size_t(slot.slot)]++;
      ASSERT_EQ(slot.error, "");
      if (slot.sampled.token == c.tokens[k])
        largest = std::max(largest, std::abs(double(slot.sampled.logprob) - c.logprob[k]));
      if (c.top1[k] - c.top2[k] <= margin) continue;
      compared++;
      EXPECT_EQ(slot.sampled.token, c.tokens[k]) << "case " << slot.slot << ", token " << k;
    }
  ::testing::Test::RecordProperty("compared", compared);
  ::testing::Test::RecordProperty("largest_logprob_difference", std::to_string(largest));
  EXPECT_GT(compared, 200);
  EXPECT_LT(largest, largest_allowed);
}

TEST(SmolLm2Test, E08_DefaultArithmeticPicksTheReferencesToken) {
  compare(tiny_options(), 0.5, 0.5);
}

TEST(SmolLm2Test, E08_ThreeRanksOfTwoStagesPickTheReferencesToken) {
  compare(tiny_options(3, 2), 0.5, 0.5);
}

TEST(SmolLm2Test, E08_F32ArithmeticPicksTheReferencesToken) {
  ReplicaOptions options = tiny_options();
  options.activations = ActivationMode::f32;
  compare(options, 0.01, 0.005);
}

}  // namespace
}  // namespace cohort::testing
