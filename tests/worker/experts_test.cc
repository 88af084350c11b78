// SPDX-License-Identifier: Apache-2.0
// Mixtures of experts give one answer: the same bits for every layout of TP x PP x DP (and so EP),
// uneven expert shares, copies of hot experts, micro-batches, and any company.
#include <gtest/gtest.h>

#include "tests/support/replay.h"
#include "tests/support/spawn_ranks.h"
#include "tests/worker/requests.h"

namespace cohort::testing {
namespace {

struct Model {
  std::string name;
  int experts;
  int layer;  // one that has experts
};

struct Shape {
  int tp, pp, dp;
  std::vector<int> expert_shares = {};
};

std::string path_of(const std::string& model) { return "tests/data/tiny_models/" + model; }

ReplicaOptions options_of(const std::string& model, const Shape& shape) {
  ReplicaOptions options = tiny_options(shape.tp, shape.pp);
  options.model = path_of(model);
  options.layout.dp = shape.dp;
  options.layout.expert_shares = shape.expert_shares;
  return options;
}

OpenCheckpoint open(const std::string& model) {
  return [=] { return std::shared_ptr<Checkpoint>(require_ok(Checkpoint::open(path_of(model)))); };
}

std::vector<TestOutput> run(const std::string& model, const Shape& shape,
                            const ScheduleOptions& schedule = {}) {
  return generate(open(model), options_of(model, shape), mixed_requests(), schedule);
}

std::string text(const Shape& s) {
  return concat("tp ", s.tp, " pp ", s.pp, " dp ", s.dp, " shares ", s.expert_shares.size());
}

class ExpertsTest : public ::testing::TestWithParam<Model> {};

TEST_P(ExpertsTest, E08_E09_EveryLayoutGivesTheSameBits) {
  const auto expected = run(GetParam().name, {1, 1, 1});
  for (const TestOutput& output : expected) {
    ASSERT_EQ(output.error, "");
    ASSERT_FALSE(output.tokens.empty());
  }
  for (const Shape& shape : std::vector<Shape>{{2, 1, 1},
                                               {3, 1, 1},  // 4 heads, of 2 KV heads or of none
                                               {1, 2, 1},
                                               {1, 1, 2},
                                               {1, 1, 3},
                                               {2, 1, 2},
                                               {1, 2, 2},
                                               {2, 1, 1, {3, 1}},
                                               {1, 1, 4, {2, 0, 1, 1}}}) {
    SCOPED_TRACE(text(shape));
    EXPECT_EQ(run(GetParam().name, shape), expected);
  }
}

TEST_P(ExpertsTest, E11_ChunksAndCompanyChangeNoBit) {
  const auto expected = run(GetParam().name, {1, 1, 1});
  for (const int chunk : {1, 5, 17})
    EXPECT_EQ(run(GetParam().name, {1, 1, 2}, {.chunk = chunk, .descending_blocks = true}),
              expected)
        << chunk;
  const ReplicaOptions alone = options_of(GetParam().name, {1, 1, 1});
  EXPECT_EQ(generate(open(GetParam().name), alone, {mixed_requests()[1]})[0], expected[1]);
}

// Copies come and go between steps, while requests run.
TEST_P(ExpertsTest, CopiesOfExpertsChangeNoBit) {
  const Model model = GetParam();
  const auto expected = run(model.name, {1, 1, 1});
  const auto change = [&](std::vector<StepPlan>& plans) {
    ASSERT_GT(plans.size(), 6u);
    for (int expert = 0; expert < model.experts; expert++)
      plans[2].copies.push_back({model.layer, expert, 1, true});
    plans[4].copies.push_back({model.layer, 0, 1, false});
    plans[5].copies.push_back({model.layer, model.experts - 1, 0, true});
    plans[6].copies.push_back({model.layer, 0, 1, true});
  };
  EXPECT_EQ(run(model.name, {1, 1, 2}, {.change = change}), expected);
}

TEST_P(ExpertsTest, MicroBatchesChangeNoBit) {
  const auto expected = run(GetParam().name, {1, 1, 1});
  const auto split = [](std::vector<StepPlan>& plans) {
    for (StepPlan& plan : plans) plan.micro_batches = 2;
  };
  for (const Shape& shape : std::vector<Shape>{{2, 1, 1}, {1, 1, 2}, {1, 2, 2}}) {
    SCOPED_TRACE(text(shape));
    EXPECT_EQ(run(GetParam().name, shape, {.change = split}), expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ExpertsTest,
                         ::testing::Values(Model{"mixtral", 6, 1}, Model{"qwen2_moe", 6, 2},
                                           Model{"qwen3_moe", 8, 1}, Model{"olmoe", 8, 1},
                                           Model{"deepseek_v2", 8, 1}, Model{"deepseek_v3", 8, 1}),
                         [](const auto& info) { return info.param.name; });

// One scale covers the rotated and the compressed part of a latent row.
TEST(LatentAttentionTest, E08_Int8CacheGivesTheSameBitsOnEveryLayout) {
  const auto with_int8 = [](const Shape& shape, const ScheduleOptions& schedule = {}) {
    ReplicaOptions options = options_of("deepseek_v2", shape);
    options.kv_dtype = DType::i8;
    return generate(open("deepseek_v2"), options, mixed_requests(), schedule);
  };
  const auto expected = with_int8({1, 1, 1});
  for (const TestOutput& output : expected) EXPECT_EQ(output.error, "");
  EXPECT_EQ(with_int8({2, 1, 1}), expected);
  EXPECT_EQ(with_int8({1, 2, 1}), expected);
  EXPECT_EQ(with_int8({1, 1, 1}, {.chunk = 5}), expected);
}

}  // namespace
}  // namespace cohort::testing
