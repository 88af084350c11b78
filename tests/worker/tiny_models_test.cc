// SPDX-License-Identifier: Apache-2.0
// The checkpoints of tests/data/tiny_models against transformers' logits
// (tests/reference/make_tiny_models.py).
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/reference_model.h"
#include "tests/support/replay.h"
#include "tests/support/spawn_ranks.h"
#include "tests/worker/requests.h"

namespace cohort::testing {
namespace {

const std::filesystem::path kFolder = "tests/data/tiny_models";

struct Model {
  std::string name;  // folder
  std::string file;  // within it; empty: the folder itself
  int tp, pp;
};

class TinyModelsTest : public ::testing::TestWithParam<Model> {
 protected:
  void SetUp() override {
    const auto folder = kFolder / GetParam().name;
    expected_ = nlohmann::json::parse(std::ifstream(folder / "expected.json"));
    std::ifstream file(folder / "expected.bin", std::ios::binary);
    const auto bytes = std::filesystem::file_size(folder / "expected.bin");
    logits_.resize(bytes / sizeof(float));
    file.read(reinterpret_cast<char*>(logits_.data()), std::streamsize(bytes));
    ASSERT_TRUE(file.good());
    options_ = tiny_options(GetParam().tp, GetParam().pp);
    options_.activations = ActivationMode::f32;
  }

  OpenCheckpoint open() const {
    const auto path = kFolder / GetParam().name / GetParam().file;
    return
        [path] { return std::shared_ptr<Checkpoint>(require_ok(Checkpoint::open(path.string()))); };
  }

  nlohmann::json expected_;
  std::vector<float> logits_;
  ReplicaOptions options_;
};

TEST_P(TinyModelsTest, E08_LogitsAreThoseOfTransformers) {
  const size_t vocab = expected_["vocab"];
  double largest = 0;
  for (const auto& prompt : expected_["prompts"]) {
    const std::vector<int32_t> ids = prompt["ids"];
    std::vector<TestRequest> requests;
    for (size_t n = 1; n <= ids.size(); n++)
      requests.push_back({{ids.begin(), ids.begin() + int64_t(n)}, 1, greedy(int(vocab)), 0});
    const auto outputs = generate(open(), options_, requests);
    for (size_t t = 0; t < ids.size(); t++) {
      const auto row = logits_.begin() + int64_t(size_t(prompt["logits_offset"]) + t * vocab);
      const auto want = log_softmax({row, row + int64_t(vocab)});
      ASSERT_EQ(outputs[t].tokens.at(0).top.size(), vocab);
      for (const TokenLogprob& got : outputs[t].tokens[0].top)
        largest = std::max(largest, std::abs(double(got.logprob) - want[size_t(got.token)]));
    }
  }
  RecordProperty("largest_difference", std::to_string(largest));
  EXPECT_LT(largest, 1e-3);
}

TEST_P(TinyModelsTest, E08_GreedyTokensAreThoseOfTransformers) {
  std::vector<TestRequest> requests;
  for (const auto& prompt : expected_["prompts"]) {
    const std::vector<int32_t> greedy_tokens = prompt["greedy"];
    requests.push_back({prompt["ids"], int(greedy_tokens.size()), greedy(), 0});
  }
  const auto outputs = generate(open(), options_, requests);
  for (size_t i = 0; i < requests.size(); i++) {
    std::vector<int32_t> tokens;
    for (const SampledToken& token : outputs[i].tokens) tokens.push_back(token.token);
    EXPECT_EQ(tokens, expected_["prompts"][i]["greedy"].get<std::vector<int32_t>>()) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, TinyModelsTest,
    ::testing::Values(Model{"llama2", "", 2, 1}, Model{"llama3", "", 1, 3},
                      Model{"llama3_bf16", "", 2, 1},
                      Model{"llama3_bf16", "llama3_bf16.gguf", 1, 1}, Model{"mistral", "", 2, 2},
                      Model{"smollm2", "", 3, 2}, Model{"tinyllama", "", 2, 2},
                      Model{"qwen2", "", 2, 2}, Model{"qwen3", "", 2, 1},
                      // 4 query heads read 2 KV heads: 1, 2 and 1 of them, and one each.
                      Model{"qwen2", "", 3, 1}, Model{"qwen3", "", 3, 1}, Model{"olmoe", "", 3, 1},
                      Model{"mistral", "", 4, 1}, Model{"mixtral", "", 2, 1},
                      Model{"qwen2_moe", "", 2, 2}, Model{"qwen3_moe", "", 2, 1},
                      Model{"olmoe", "", 2, 1}, Model{"deepseek_v2", "", 2, 1},
                      Model{"deepseek_v2_lite", "", 2, 2}, Model{"deepseek_v3", "", 2, 1},
                      Model{"mixtral", "mixtral.gguf", 1, 2}),
    [](const auto& info) {
      const Model& m = info.param;
      return concat(m.name, m.file.empty() ? "" : "_gguf", "_tp", m.tp, "_pp", m.pp);
    });

}  // namespace
}  // namespace cohort::testing
