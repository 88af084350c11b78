// SPDX-License-Identifier: Apache-2.0
// tests/data/tokenizers: what the Python package `tokenizers` makes of many texts
// (tests/reference/make_tokenizers.py).
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/utf8.h"
#include "model/tokenizer.h"

namespace cohort {
namespace {

using nlohmann::json;

const std::string kFolder = "tests/data/tokenizers/";

class TokenizerReference : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    auto loaded = Tokenizer::from_json_file(kFolder + GetParam() + ".json");
    ASSERT_TRUE(loaded.ok()) << loaded.status().message();
    tokenizer_ = std::move(loaded).value();
    std::ifstream file(kFolder + GetParam() + ".expected.json");
    expected_ = json::parse(file);
  }

  std::string streamed(const std::vector<TokenId>& ids, bool skip_special) const {
    IncrementalDecoder decoder(*tokenizer_, skip_special);
    std::string all;
    for (TokenId id : ids) {
      const std::string chunk = decoder.push(id);
      EXPECT_TRUE(utf8_valid(chunk)) << "token " << id;
      all += chunk;
    }
    const std::string rest = decoder.flush();
    EXPECT_TRUE(utf8_valid(rest));
    return all + rest;
  }

  std::unique_ptr<Tokenizer> tokenizer_;
  json expected_;
};

std::string bytes_of_hex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2)
    bytes += char(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

TEST_P(TokenizerReference, EncodesAsThePackageDoes) {
  ASSERT_GT(expected_["encode"].size(), 150u);
  for (const json& item : expected_["encode"]) {
    const std::string text = item["text"];
    const auto ids = item["ids"].get<std::vector<TokenId>>();
    EXPECT_EQ(tokenizer_->encode(text, {}), ids) << text;
    EXPECT_EQ(tokenizer_->encode(text, {.parse_special = false, .add_special = false}),
              item["plain"].get<std::vector<TokenId>>())
        << text;
    EXPECT_EQ(tokenizer_->decode(ids, true), item["decoded"].get<std::string>()) << text;
  }
}

TEST_P(TokenizerReference, EncodesIllFormedBytesAsReplacementCharacters) {
  ASSERT_GE(expected_["broken"].size(), 40u);
  for (const json& item : expected_["broken"])
    EXPECT_EQ(tokenizer_->encode(bytes_of_hex(item["hex"]), {.add_special = false}),
              item["ids"].get<std::vector<TokenId>>())
        << item["hex"];
}

TEST_P(TokenizerReference, E23_DecodesAnyTokensWholeAndStreamed) {
  ASSERT_GE(expected_["decode"].size(), 60u);
  for (const json& item : expected_["decode"]) {
    const auto ids = item["ids"].get<std::vector<TokenId>>();
    EXPECT_EQ(tokenizer_->decode(ids, false), item["all"].get<std::string>()) << item;
    EXPECT_EQ(tokenizer_->decode(ids, true), item["skipped"].get<std::string>()) << item;
    EXPECT_EQ(streamed(ids, false), item["all"].get<std::string>()) << item;
    EXPECT_EQ(streamed(ids, true), item["skipped"].get<std::string>()) << item;
  }
}

INSTANTIATE_TEST_SUITE_P(, TokenizerReference,
                         testing::Values("bytes_llama3", "bytes_gpt2_nfc", "bytes_digits",
                                         "bytes_o200k", "bytes_deepseek3", "bytes_falcon",
                                         "spm_legacy", "spm_metaspace", "spm_gemma"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace cohort
