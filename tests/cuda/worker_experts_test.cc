// SPDX-License-Identifier: Apache-2.0
// Mixtures of experts, and the families with biases and normed heads, on GPUs: the CPU's tokens on
// every layout, captured and not, in any order of work; with --deterministic the same bits. What
// GPUs do not compute is refused.
#include <gmock/gmock.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <optional>

#include "tests/cuda/worker_fixture.h"
#include "tests/cuda_emulation/planting.h"
#include "tests/support/spawn_ranks.h"
#include "worker/rank.h"

namespace cohort::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string path_of(const std::string& model) { return "tests/data/tiny_models/" + model; }

OpenCheckpoint open(const std::string& model) {
  return [=] { return std::shared_ptr<Checkpoint>(require_ok(Checkpoint::open(path_of(model)))); };
}

struct Shape {
  int tp, pp;
  std::vector<int> expert_shares = {};
};

std::string text(const Shape& s) {
  return concat("tp ", s.tp, " pp ", s.pp, " shares ", s.expert_shares.size());
}

ReplicaOptions options_of(const Shape& shape, bool graphs, bool deterministic) {
  ReplicaOptions options = gpu_options(DType::f32, shape.tp, shape.pp);
  options.layout.expert_shares = shape.expert_shares;
  options.gpu.graphs = graphs;
  options.gpu.deterministic = deterministic;
  options.limits.max_slots = 4;
  options.limits.max_rows = 16;
  return options;
}

// Greedy, drawn and penalised ones; the last prompt takes two steps. All three decode together, so
// that one of the rows of a captured step of four is padding.
std::vector<TestRequest> short_requests() {
  std::vector<TestRequest> requests = mixed_requests();
  return {{requests[0].prompt, 3, requests[0].sampling, 0},
          {some_tokens(7, 2), 3, requests[2].sampling, 0},
          {requests[3].prompt, 3, requests[4].sampling, 0}};
}

struct Case {
  std::string model;
  std::vector<Shape> shapes;
};

class WorkerExpertsTest : public GpuWorkerTest, public ::testing::WithParamInterface<Case> {
 protected:
  static std::vector<TestOutput> run(const Shape& shape, bool graphs, bool deterministic) {
    return generate(open(GetParam().model), options_of(shape, graphs, deterministic),
                    short_requests(), {.chunk = 16});
  }
  static std::vector<TestOutput> expected() {
    return cpu_answer(open(GetParam().model), short_requests());
  }
};

TEST_P(WorkerExpertsTest, E08_EveryLayoutGivesTheTokensOfTheCpu) {
  const auto want = expected();
  bool graphs = true;
  for (const Shape& shape : GetParam().shapes) {
    SCOPED_TRACE(concat(text(shape), " graphs ", graphs));
    expect_close(run(shape, graphs, false), want, 1e-4);
    graphs = !graphs;
  }
}

TEST_P(WorkerExpertsTest, E08_E09_DeterministicLayoutsGiveTheSameBits) {
  const auto alone = run({1, 1}, false, true);
  expect_close(alone, expected(), 1e-4);
  bool graphs = true;
  for (const Shape& shape : GetParam().shapes) {
    SCOPED_TRACE(concat(text(shape), " graphs ", graphs));
    EXPECT_EQ(run(shape, graphs, true), alone);
    graphs = !graphs;
  }
  // In other chunks, without the others.
  EXPECT_EQ(generate(open(GetParam().model), options_of({1, 1}, false, true), {short_requests()[2]},
                     {.chunk = 5})[0],
            alone[2]);
}

TEST_P(WorkerExpertsTest, E08_NoOrderOfWorkChangesTokens) {
  const auto want = expected();
  const Shape shape = GetParam().shapes.front();
  for (const uint64_t seed : {0, 1}) {
    SCOPED_TRACE(concat("seed ", seed));
    emu::set_schedule(seed == 0 ? emu::Schedule::newest_first : emu::Schedule::random, seed);
    expect_close(run(shape, seed == 0, false), want, 1e-4);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, WorkerExpertsTest,
    ::testing::Values(Case{"mixtral", {{2, 1, {3, 1}}, {2, 1, {1, 0}}, {2, 2}}},
                      Case{"qwen2_moe", {{1, 2}, {2, 1}}}, Case{"qwen3_moe", {{2, 1}, {1, 1}}},
                      Case{"qwen2", {{2, 1}}}, Case{"qwen3", {{2, 1}}}),
    [](const auto& info) { return info.param.model; });

// Greedy first tokens, with their most likely rivals.
std::vector<TestOutput> first_tokens(const std::string& model, const ReplicaOptions& options,
                                     int rivals) {
  std::vector<TestRequest> requests;
  for (const int length : {1, 5, 16})
    requests.push_back({some_tokens(length, 9), 1, greedy(rivals), 0});
  return generate(open(model), options, requests);
}

double largest_difference(const std::vector<TestOutput>& got, const std::vector<TestOutput>& want) {
  double largest = 0;
  for (size_t i = 0; i < got.size(); i++) {
    EXPECT_EQ(got[i].tokens.at(0).top.size(), 20u) << got[i].error;
    std::map<int32_t, float> expected;
    for (const TokenLogprob& t : want[i].tokens.at(0).top) expected[t.token] = t.logprob;
    for (const TokenLogprob& t : got[i].tokens[0].top)
      largest = std::max(largest, std::fabs(double(t.logprob) - double(expected.at(t.token))));
  }
  return largest;
}

// Activations of 11 and 8 bits of mantissa; sums of experts are f32 there too.
TEST_F(GpuWorkerTest, SixteenBitsAreClose) {
  ReplicaOptions cpu = tiny_options();
  cpu.activations = ActivationMode::f32;
  for (const std::string model : {"mixtral", "qwen2_moe"}) {
    const auto want = first_tokens(model, cpu, 272);
    for (const auto& [type, tolerance] :
         {std::pair(DType::f16, 0.02), std::pair(DType::bf16, 0.16)}) {
      SCOPED_TRACE(concat(model, " in ", name(type)));
      ReplicaOptions options = options_of({2, 1}, false, false);
      options.gpu.dtype = options.kv_dtype = type;
      EXPECT_LT(largest_difference(first_tokens(model, options, 20), want), tolerance);
    }
  }
}

// One step after the other on one rank, each a new prompt in place of the last.
class Prompts {
 public:
  explicit Prompts(Rank& rank) : rank_(rank) {}

  std::string run(uint32_t seed) {
    StepPlan plan;
    const std::vector<int32_t> prompt = some_tokens(5, seed);
    plan.entries.push_back({.slot = 0,
                            .start = 0,
                            .length = 5,
                            .sample = true,
                            .new_blocks = {0},
                            .sequence = NewSequence{prompt, 5, greedy(8)}});
    if (step_ > 0) plan.frees = {0};
    plan.epoch = 1;
    plan.step = ++step_;
    plan.checksum = checksum_ = chain_checksum(checksum_, plan);
    const std::optional<StepResult> result = require_ok(rank_.execute(plan));
    const SlotResult& slot = result.value().slots.at(0);
    std::string text = concat(slot.error, " ", slot.sampled.token);
    for (const TokenLogprob& t : slot.sampled.top)
      text += concat(" ", t.token, ":", std::bit_cast<uint32_t>(t.logprob));
    return text;
  }

 private:
  Rank& rank_;
  uint64_t step_ = 0, checksum_ = 0;
};

// Each kernel of a step is needed: what is left over from the step before is another prompt's. But
// for one that looks for values that are not finite, and in the last layer one that merges what
// attention found for rows that nobody samples.
TEST_F(GpuWorkerTest, MissingKernelsAreFound) {
  constexpr int kSpare = 2;
  spawn_ranks(1, [&](World& world) {
    const auto rank =
        require_ok(Rank::load(world, *open("mixtral")(), options_of({1, 1}, false, true), {}));
    Prompts prompts(*rank);
    const std::string expected[] = {prompts.run(0), prompts.run(1)};
    const uint64_t before = emu::calls("kernel launch", 0);
    EXPECT_EQ(prompts.run(0), expected[0]);
    const int launches = int(emu::calls("kernel launch", 0) - before);
    EXPECT_GT(launches, 30);
    int spare = 0;
    for (int nth = 0; nth < launches; nth++) {
      EXPECT_EQ(prompts.run(uint32_t(nth) % 2), expected[nth % 2]);
      emu::drop_next("kernel launch", nth, 0);
      spare += prompts.run(uint32_t(nth + 1) % 2) == expected[(nth + 1) % 2];
      EXPECT_EQ(emu::planted(), 0u);
    }
    EXPECT_LE(spare, kSpare);
    EXPECT_EQ(prompts.run(1), expected[1]);  // nothing stays
  });
}

Status refusal(const std::string& model, int dp) {
  ReplicaOptions options = options_of({1, 1}, false, false);
  options.layout.dp = dp;
  std::vector<Status> outcome(static_cast<size_t>(dp));
  spawn_ranks(dp, [&](World& world) {
    const auto checkpoint = open(model)();
    outcome[size_t(world.rank())] = Rank::load(world, *checkpoint, options, {}).status();
  });
  for (const Status& status : outcome) EXPECT_EQ(status.ok(), outcome[0].ok());
  return outcome[0];
}

TEST_F(GpuWorkerTest, WhatRunsOnCpusAloneIsRefused) {
  const auto refused = [](const std::string& what) {
    return AllOf(HasSubstr(what), HasSubstr("on CPUs alone"), HasSubstr("docs/experts.md"));
  };
  EXPECT_THAT(refusal("mixtral", 2).message(), refused("--dp 2"));
  EXPECT_THAT(refusal("deepseek_v2", 1).message(), refused("DeepSeek"));
  EXPECT_THAT(refusal("olmoe", 1).message(), refused("OLMoE"));
}

}  // namespace
}  // namespace cohort::testing
