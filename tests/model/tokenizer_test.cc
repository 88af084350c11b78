// SPDX-License-Identifier: Apache-2.0
#include "model/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "base/utf8.h"
#include "model/gguf.h"
#include "model/tokenizer_json.h"
#include "tests/support/gguf_writer.h"

namespace cohort {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using Ids = std::vector<TokenId>;

// A small SentencePiece vocabulary: ids 0 to 4 are control tokens, then the 256 bytes, then pieces.
constexpr int kFirstByte = 5, kFirstPiece = 261;
const std::vector<std::pair<std::string, float>> kPieces = {
    {"▁", -10}, {"a", -11}, {"b", -12}, {"ab", -1}, {"▁a", -2}, {"ba", -3}, {"aba", -0.5f},
};

GgufWriter sentencepiece() {
  GgufWriter w;
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>", "<|im_end|>", "<user>"};
  std::vector<float> scores(tokens.size(), 0);
  std::vector<int32_t> types = {2, 3, 3, 3, 4};
  for (int b = 0; b < 256; b++) {
    char text[8];
    std::snprintf(text, sizeof(text), "<0x%02X>", unsigned(b));
    tokens.push_back(text);
    scores.push_back(0);
    types.push_back(6);
  }
  for (const auto& [text, score] : kPieces) {
    tokens.push_back(text);
    scores.push_back(score);
    types.push_back(1);
  }
  w.add_string("tokenizer.ggml.model", "llama");
  w.add_strings("tokenizer.ggml.tokens", tokens);
  w.add_f32s("tokenizer.ggml.scores", scores);
  w.add_i32s("tokenizer.ggml.token_type", types);
  w.add_u32("tokenizer.ggml.bos_token_id", 1);
  w.add_u32("tokenizer.ggml.eos_token_id", 2);
  return w;
}

TokenId piece(const std::string& text) {
  for (size_t i = 0; i < kPieces.size(); i++)
    if (kPieces[i].first == text) return kFirstPiece + TokenId(i);
  return -1;
}

Result<std::unique_ptr<Tokenizer>> from_writer(const GgufWriter& writer) {
  const std::string bytes = writer.bytes();
  const auto file = GgufFile::parse(std::as_bytes(std::span(bytes)), "model.gguf");
  if (!file.ok()) return file.status();
  return Tokenizer::from_gguf(**file);  // keeps nothing of the file
}

std::unique_ptr<Tokenizer> loaded(const GgufWriter& writer) {
  auto tokenizer = from_writer(writer);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  return std::move(tokenizer).value();
}

// A byte-level tokenizer.json of single characters and one merge, with these added tokens.
json byte_level(const json& added) {
  json vocab;
  for (int c = '!'; c <= '~'; c++) vocab[std::string(1, char(c))] = c - '!';
  vocab["Ġ"] = 94;
  vocab["Ċ"] = 95;
  vocab["hi"] = 96;
  return {
      {"added_tokens", added},
      {"normalizer", nullptr},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
      {"post_processor", nullptr},
      {"decoder", {{"type", "ByteLevel"}}},
      {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", {"h i"}}}}};
}

json added_token(int id, const std::string& content, bool special) {
  return {{"id", id}, {"content", content}, {"special", special}, {"normalized", false}};
}

const json kAdded = {added_token(97, "<|start|>", true), added_token(98, "<|end|>", true),
                     added_token(99, "<think>", false)};

Result<std::unique_ptr<Tokenizer>> from_json(const json& root, const json& config = nullptr,
                                             const json& generation = nullptr) {
  return tokenizer_from_json({.name = "tokenizer.json",
                              .tokenizer = root.dump(),
                              .tokenizer_config = config.is_null() ? "" : config.dump(),
                              .generation_config = generation.is_null() ? "" : generation.dump(),
                              .chat_template = ""});
}

std::unique_ptr<Tokenizer> loaded(const json& root, const json& config = nullptr,
                                  const json& generation = nullptr) {
  auto tokenizer = from_json(root, config, generation);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  return std::move(tokenizer).value();
}

constexpr EncodeOptions kPlain{.parse_special = false, .add_special = false};
constexpr EncodeOptions kParse{.parse_special = true, .add_special = false};

TEST(SentencePieceTokenizer, MergesTheBestScoreFirst) {
  const auto t = loaded(sentencepiece());
  // Of "▁abab" the left "ab" merges first; with the next "a" it is the better "aba" (-0.5).
  EXPECT_EQ(t->encode("abab", kPlain), (Ids{piece("▁"), piece("aba"), piece("b")}));
  // "▁aba": "ab" merges first, then "aba" (-0.5) is possible.
  EXPECT_EQ(t->encode("aba", kPlain), (Ids{piece("▁"), piece("aba")}));
  EXPECT_EQ(t->encode("aa", kPlain), (Ids{piece("▁a"), piece("a")}));
}

TEST(SentencePieceTokenizer, FallsBackToBytes) {
  const auto t = loaded(sentencepiece());
  EXPECT_EQ(t->encode("é", kPlain), (Ids{piece("▁"), kFirstByte + 0xc3, kFirstByte + 0xa9}));
  EXPECT_EQ(t->decode(t->encode("é\n😀", kPlain), false), "é\n😀");
}

TEST(SentencePieceTokenizer, PutsASpaceAndBosInFront) {
  const auto t = loaded(sentencepiece());
  EXPECT_EQ(t->encode("b", {}), (Ids{1, piece("▁"), piece("b")}));
  EXPECT_EQ(t->token_bytes(piece("▁a")), " a");
  EXPECT_EQ(t->decode(t->encode("b", {}), true), "b");
  EXPECT_EQ(t->decode(t->encode("  b", {}), true), "  b");
  EXPECT_EQ(t->encode("", {}), Ids{1});
}

TEST(SentencePieceTokenizer, KnowsItsSpecialTokens) {
  const auto t = loaded(sentencepiece());
  EXPECT_EQ(t->bos(), 1);
  EXPECT_EQ(t->eos(), 2);
  EXPECT_THAT(t->end_tokens(), ElementsAre(2, 3));
  EXPECT_TRUE(t->is_control(3));
  EXPECT_FALSE(t->is_control(4));
  EXPECT_FALSE(t->is_control(-1));
  EXPECT_FALSE(t->is_control(1 << 20));
  EXPECT_EQ(t->token_bytes(-1), "");
  EXPECT_EQ(t->token_bytes(t->vocab_size()), "");
  EXPECT_EQ(t->find("</s>"), 2);
  EXPECT_EQ(t->find("absent"), std::nullopt);
}

TEST(Tokenizer, TextNeverBecomesAControlTokenUnlessAsked) {
  const auto t = loaded(sentencepiece());
  EXPECT_THAT(t->encode("a</s>", kParse), testing::Contains(2));
  EXPECT_THAT(t->encode("a</s>", kPlain), testing::Not(testing::Contains(2)));
  EXPECT_EQ(t->decode(t->encode("a</s>", kPlain), true), "a</s>");
  // Added tokens that are not control tokens are part of the vocabulary.
  EXPECT_THAT(t->encode("a<user>", kPlain), testing::Contains(4));
}

TEST(Tokenizer, ControlTokensAreNotSeenInLiteralRanges) {
  const auto t = loaded(byte_level(kAdded));
  const std::string text = "<|start|>hi<|end|>hi<|end|>";
  const Ids spelled = t->encode("<|end|>", kPlain);
  ASSERT_GT(spelled.size(), 1u);
  EXPECT_EQ(t->encode(text, kParse), (Ids{97, 96, 98, 96, 98}));
  const std::vector<TextRange> literal = {{9, 18}};  // "hi<|end|>"
  Ids expected = {97, 96};
  expected.insert(expected.end(), spelled.begin(), spelled.end());
  expected.insert(expected.end(), {96, 98});
  EXPECT_EQ(t->encode(text, kParse, literal), expected);
}

TEST(Tokenizer, ControlTokensThatReachIntoALiteralRangeAreText) {
  const auto t = loaded(byte_level(kAdded));
  // What the user wrote ends in "<|e"; what follows must not complete it.
  for (const TextRange range : {TextRange{0, 3}, TextRange{3, 4}, TextRange{6, 7}})
    EXPECT_EQ(t->encode("<|end|>", kParse, std::vector{range}), t->encode("<|end|>", kPlain))
        << range.begin;
  for (const TextRange range : {TextRange{0, 0}, TextRange{7, 9}})
    EXPECT_EQ(t->encode("<|end|>hi", kParse, std::vector{range}), (Ids{98, 96}));
}

TEST(Tokenizer, LiteralRangesFollowRepairedText) {
  const auto t = loaded(byte_level(kAdded));
  // One ill-formed byte becomes three, and the ranges move with it.
  const std::string text = "\xff<|end|>\xff<|end|>";
  const std::vector<TextRange> literal = {{1, 8}};
  const Ids ids = t->encode(text, kParse, literal);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 98), 1);
  EXPECT_EQ(ids.back(), 98);
}

TEST(Tokenizer, ReadsTheFilesBesideTokenizerJson) {
  const auto t = loaded(byte_level(kAdded),
                        {{"bos_token", {{"content", "<|start|>"}}},
                         {"eos_token", "<|end|>"},
                         {"add_bos_token", true},
                         {"chat_template", "{{ x }}"}},
                        {{"eos_token_id", {98, 99}}});
  EXPECT_EQ(t->bos(), 97);
  EXPECT_EQ(t->eos(), 98);
  EXPECT_THAT(t->end_tokens(), ElementsAre(98, 99));
  EXPECT_EQ(t->chat_template(), "{{ x }}");
  EXPECT_EQ(t->encode("hi", {}), (Ids{97, 96}));
}

std::string refusal(const Result<std::unique_ptr<Tokenizer>>& result) {
  return result.ok() ? "it was accepted" : result.status().message();
}

TEST(Tokenizer, RefusesOtherKindsOfModelsByName) {
  for (const auto& [model, family] : std::map<std::string, std::string>{
           {"bert", "WordPiece"}, {"t5", "unigram"}, {"rwkv", "greedy trie"}, {"x", "\"x\""}}) {
    GgufWriter w;
    w.add_string("tokenizer.ggml.model", model);
    EXPECT_THAT(refusal(from_writer(w)),
                testing::AllOf(HasSubstr("model.gguf"), HasSubstr(family)));
  }
  for (const char* type : {"WordPiece", "Unigram", "WordLevel"}) {
    json root = byte_level(kAdded);
    root["model"]["type"] = type;
    EXPECT_THAT(refusal(from_json(root)), HasSubstr(type));
  }
}

TEST(Tokenizer, RefusesUnknownPreTokenizers) {
  GgufWriter w;
  w.add_string("tokenizer.ggml.model", "gpt2");
  w.add_string("tokenizer.ggml.pre", "from-the-future");
  w.add_strings("tokenizer.ggml.tokens", {"a"});
  EXPECT_THAT(refusal(from_writer(w)), HasSubstr("unknown pre-tokenizer \"from-the-future\""));
}

TEST(Tokenizer, RefusesBrokenMetadata) {
  EXPECT_THAT(refusal(from_writer(GgufWriter())), HasSubstr("tokenizer.ggml.model"));
  GgufWriter tokens;
  tokens.add_string("tokenizer.ggml.model", "llama");
  EXPECT_THAT(refusal(from_writer(tokens)), HasSubstr("tokenizer.ggml.tokens"));
  tokens.add_strings("tokenizer.ggml.tokens", {"a", "b"});
  EXPECT_THAT(refusal(from_writer(tokens)), HasSubstr("tokenizer.ggml.scores"));
  tokens.add_f32s("tokenizer.ggml.scores", {1, std::numeric_limits<float>::quiet_NaN()});
  EXPECT_THAT(refusal(from_writer(tokens)), HasSubstr("not finite"));
}

struct BadJson {
  const char* pointer;
  json value;
  const char* message;
};

TEST(Tokenizer, RefusesBrokenTokenizerJson) {
  const std::vector<BadJson> cases = {
      {"/model/vocab", json::object(), "model.vocab is missing"},
      {"/model/vocab/a", -1, "bad token or id"},
      {"/model/vocab/a", 3000000, "bad token or id"},
      {"/model/merges", {"h"}, "a merge of one token"},
      {"/model/merges", {"h zz"}, "not in the vocabulary"},
      {"/model/merges", {1}, "no pair of tokens"},
      {"/model/dropout", 0.5, "dropout"},
      {"/model/end_of_word_suffix", "</w>", "end_of_word_suffix"},
      {"/added_tokens/0/id", nullptr, "without an id"},
      {"/decoder", {{"type", "CTC"}}, "decoder \"CTC\""},
      {"/normalizer", {{"type", "BertNormalizer"}}, "normalizer \"BertNormalizer\""},
      {"/pre_tokenizer", {{"type", "BertPreTokenizer"}}, "pre-tokenizer \"BertPreTokenizer\""},
      {"/pre_tokenizer",
       {{"type", "Split"}, {"pattern", {{"Regex", "(a"}}}, {"behavior", "Isolated"}},
       "cannot be compiled"},
      {"/pre_tokenizer",
       {{"type", "Split"}, {"pattern", {{"Regex", "[a&&[b]]"}}}, {"behavior", "Isolated"}},
       "set intersection"},
      {"/post_processor", {{"type", "Odd"}}, "post-processor \"Odd\""},
  };
  for (const BadJson& bad : cases) {
    json root = byte_level(kAdded);
    root[json::json_pointer(bad.pointer)] = bad.value;
    EXPECT_THAT(refusal(from_json(root)),
                testing::AllOf(testing::StartsWith("tokenizer.json: "), HasSubstr(bad.message)))
        << bad.pointer;
  }
  EXPECT_THAT(refusal(tokenizer_from_json({.name = "x", .tokenizer = "{"})), HasSubstr("JSON"));
  EXPECT_THAT(refusal(Tokenizer::from_json_file("/absent/tokenizer.json")),
              HasSubstr("/absent/tokenizer.json"));
}

TEST(Tokenizer, RefusesEndlessNesting) {
  json step = {{"type", "ByteLevel"}};
  for (int i = 0; i < 100; i++) step = {{"type", "Sequence"}, {"pretokenizers", {step}}};
  json root = byte_level(kAdded);
  root["pre_tokenizer"] = step;
  EXPECT_THAT(refusal(from_json(root)), HasSubstr("too many pre-tokenizers"));
}

// Long runs without a place to cut are where quadratic algorithms show: at a million characters
// they take minutes, not the second or so that this takes.
TEST(Tokenizer, TakesAMillionCharactersWithoutSpacesInBoundedTime) {
  const auto spm = loaded(sentencepiece());
  const auto bytes = loaded(byte_level(kAdded));
  const std::clock_t begin = std::clock();  // of this process: other load does not count
  for (const char* unit : {"ab", "7", "\n", "<|", "é"}) {
    std::string text;
    while (text.size() < 1'000'000) text += unit;
    EXPECT_FALSE(spm->encode(text, kPlain).empty());
    EXPECT_EQ(spm->decode(spm->encode(text, kPlain), false), text);
    bytes->encode(text, kParse);
  }
  EXPECT_LT(double(std::clock() - begin) / CLOCKS_PER_SEC, 60);
}

TEST(Tokenizer, HostilePatternsEndInBoundedTime) {
  json root = byte_level(kAdded);
  root["pre_tokenizer"] = {{"type", "Sequence"},
                           {"pretokenizers",
                            {{{"type", "Split"},
                              {"pattern", {{"Regex", "(a+)+b"}}},
                              {"behavior", "Isolated"},
                              {"invert", false}},
                             {{"type", "ByteLevel"}, {"use_regex", false}}}}};
  const auto t = loaded(root);
  const std::string text(200, 'a');
  EXPECT_EQ(t->decode(t->encode(text, kPlain), false), " " + text);
}

TEST(IncrementalDecoder, E23_ChunksAreWellFormedAndAddUp) {
  const auto t = loaded(sentencepiece());
  const std::string text = "aé漢😀b";
  IncrementalDecoder decoder(*t, true);
  std::string all;
  for (TokenId id : t->encode(text, {})) {
    const std::string chunk = decoder.push(id);
    EXPECT_TRUE(utf8_valid(chunk));
    all += chunk;
  }
  EXPECT_EQ(all, text);
  EXPECT_EQ(decoder.flush(), "");
}

TEST(IncrementalDecoder, E23_ReplacesWhatNeverBecomesACharacter) {
  const auto t = loaded(sentencepiece());
  IncrementalDecoder decoder(*t, true);
  EXPECT_EQ(decoder.push(piece("a")), "a");
  EXPECT_EQ(decoder.push(kFirstByte + 0xf0), "");
  EXPECT_EQ(decoder.push(kFirstByte + 0x9f), "");
  EXPECT_EQ(decoder.push(piece("b")),
            "\ufffd\ufffd"
            "b");
  EXPECT_EQ(decoder.push(kFirstByte + 0xe6), "");
  EXPECT_EQ(decoder.flush(), "\ufffd");
  EXPECT_EQ(decoder.flush(), "");
}

TEST(IncrementalDecoder, DropsControlTokensOnlyWhenAsked) {
  const auto t = loaded(sentencepiece());
  IncrementalDecoder skipping(*t, true), keeping(*t, false);
  EXPECT_EQ(skipping.push(2), "");
  EXPECT_EQ(keeping.push(2), "</s>");
  EXPECT_EQ(skipping.push(piece("▁a")), "a");
  EXPECT_EQ(keeping.push(piece("▁a")), " a");
}

}  // namespace
}  // namespace cohort
