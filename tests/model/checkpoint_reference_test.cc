// SPDX-License-Identifier: Apache-2.0
// A real model, SmolLM2-135M-Instruct as GGUF, where it is on this machine: in $COHORT_MODELS or
// ~/.cache/cohort. Expected logits: tests/reference/make_smollm2_logits.py.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/mapped_file.h"
#include "base/sha256.h"
#include "model/checkpoint.h"
#include "model/json_file.h"
#include "tests/model/reference_decoder.h"

namespace cohort {
namespace {

using nlohmann::json;

// "" where it is not there.
std::string find_model() {
  const char* models = std::getenv("COHORT_MODELS");
  const char* home = std::getenv("HOME");
  const std::string folder = models ? models : concat(home ? home : "", "/.cache/cohort");
  const std::string path = folder + "/SmolLM2-135M-Instruct.Q4_1.gguf";
  return std::filesystem::exists(path) ? path : "";
}

class SmolLm2 : public testing::Test {
 protected:
  void SetUp() override {
    const std::string path = find_model();
    if (path.empty())
      GTEST_SKIP() << "SmolLM2-135M-Instruct.Q4_1.gguf is neither in $COHORT_MODELS nor in "
                      "~/.cache/cohort; `cohort up` fetches it";
    expected_ = *read_json_file("tests/data/smollm2_logits.json");
    const auto file = *MappedFile::open(path);
    ASSERT_EQ(to_hex(sha256(file->bytes())), expected_["sha256_of_gguf"]) << "another file";
    auto opened = Checkpoint::open(path);
    ASSERT_TRUE(opened.ok()) << opened.status().to_string();
    checkpoint_ = *std::move(opened);
  }

  json expected_;
  std::unique_ptr<Checkpoint> checkpoint_;
};

TEST_F(SmolLm2, HasTheShapesThatItIsKnownFor) {
  const ModelConfig& config = checkpoint_->config();
  EXPECT_EQ(config.layers, 30);
  EXPECT_EQ(config.hidden, 576);
  EXPECT_EQ(config.heads, 9);
  EXPECT_EQ(config.kv_heads, 3);
  EXPECT_EQ(config.ffn, 1536);
  EXPECT_EQ(config.vocab, 49152);
  EXPECT_EQ(config.rope.theta, 100000);
  EXPECT_EQ(config.context, 8192);
  EXPECT_TRUE(config.tied_embedding);
  EXPECT_EQ(checkpoint_->weights().size(), 2u + 30 * 9);
}

TEST_F(SmolLm2, HasItsTokenizer) {
  const auto tokenizer = checkpoint_->tokenizer();
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  EXPECT_EQ((*tokenizer)->encode("The three primary colours are red,", {}),
            expected_["ids"].get<std::vector<TokenId>>());
}

// transformers works in f32, through 30 layers, and the file rounds to four digits.
TEST_F(SmolLm2, MeansWhatTransformersComputes) {
  const auto ids = expected_["ids"].get<std::vector<int>>();
  const std::vector<double> logits = reference_logits(*checkpoint_, ids);
  const size_t vocab = size_t(checkpoint_->config().vocab);
  for (size_t t = 0; t < ids.size(); t++) {
    const double* row = logits.data() + t * vocab;
    const json& right = expected_["positions"][t];
    for (size_t i = 0; i < right["best"].size(); i++)
      EXPECT_NEAR(row[right["best"][i].get<size_t>()], right["best_logits"][i], 2e-3) << t;
    for (size_t i = 0; i < right["every_4096th"].size(); i++)
      EXPECT_NEAR(row[i * 4096], right["every_4096th"][i].get<double>(), 2e-3) << t;
  }
  // The head is the embedding table: it was not read a second time.
  EXPECT_EQ(checkpoint_->bytes_read(), checkpoint_->total_weight_bytes());
}

}  // namespace
}  // namespace cohort
