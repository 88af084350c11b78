// SPDX-License-Identifier: Apache-2.0
#include "coordinator/openai_parse.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "coordinator/chat_input.h"

namespace cohort {
namespace {

const ParseTarget kTarget{.vocab = 100, .limits = {}};

OpenAiRequest completion(const std::string& body) {
  auto parsed = parse_completion(body, kTarget);
  if (const auto* failure = std::get_if<Failure>(&parsed)) {
    ADD_FAILURE() << failure->message;
    return {};
  }
  return std::get<OpenAiRequest>(std::move(parsed));
}

// The param of the refusal; "ACCEPTED" if there is none.
std::string refused(const std::string& body, bool chat = false) {
  auto parsed = chat ? parse_chat_completion(body, kTarget) : parse_completion(body, kTarget);
  const auto* failure = std::get_if<Failure>(&parsed);
  if (!failure) return "ACCEPTED";
  EXPECT_EQ(failure->code, Code::kInvalidArgument);
  EXPECT_FALSE(failure->message.empty());
  return failure->param;
}

TEST(OpenAiParse, ReadsACompletion) {
  const OpenAiRequest r = completion(
      R"({"model":"m","prompt":"hi","temperature":0.5,"top_k":-1,"stop":["x","yy"],"seed":-3,
          "logit_bias":{"7":-100},"logprobs":2,"n":3,"unknown_field":{"a":[1]},"max_tokens":null,
          "stream":true,"stream_options":{"include_usage":true},"user":"u","min_p":0.1})");
  EXPECT_EQ(r.request.model, "m");
  EXPECT_EQ(std::get<std::string>(r.request.prompts.at(0)), "hi");
  EXPECT_FLOAT_EQ(r.request.sampling.temperature, 0.5F);
  EXPECT_EQ(r.request.sampling.top_k, 0);
  EXPECT_EQ(r.request.sampling.stop, (std::vector<std::string>{"x", "yy"}));
  EXPECT_EQ(r.request.sampling.seed, static_cast<uint64_t>(-3));
  EXPECT_EQ(r.request.sampling.logit_bias.at(0), (std::pair<TokenId, float>(7, -100.F)));
  EXPECT_EQ(r.request.sampling.logprobs, 2);
  EXPECT_EQ(r.request.sampling.max_tokens, 16);
  EXPECT_EQ(r.request.sequences(), 3);
  EXPECT_TRUE(r.stream && r.include_usage);
}

TEST(OpenAiParse, ReadsEveryFormOfPrompt) {
  EXPECT_EQ(completion(R"({"prompt":[1,2,99]})").request.prompts.size(), 1U);
  EXPECT_EQ(completion(R"({"prompt":["a","b"]})").request.prompts.size(), 2U);
  const auto lists = completion(R"({"prompt":[[1],[2,3]]})").request.prompts;
  EXPECT_EQ(std::get<1>(lists.at(1)), (std::vector<TokenId>{2, 3}));
}

TEST(OpenAiParse, E07_RefusesWithTheNameOfTheField) {
  EXPECT_EQ(refused(R"({"prompt":"x","temperature":-1})"), "temperature");
  EXPECT_EQ(refused(R"({"prompt":"x","temperature":"1"})"), "temperature");
  EXPECT_EQ(refused(R"({"prompt":"x","top_p":0})"), "top_p");
  EXPECT_EQ(refused(R"({"prompt":"x","n":100000})"), "n");
  EXPECT_EQ(refused(R"({"prompt":["x","y"],"n":100})"), "n");
  EXPECT_EQ(refused(R"({"prompt":"x","logprobs":1000})"), "logprobs");
  EXPECT_EQ(refused(R"({"prompt":"x","echo":true,"logprobs":1})"), "echo");
  EXPECT_EQ(refused(R"({"prompt":"x","suffix":"y"})"), "suffix");
  EXPECT_EQ(refused(R"({"prompt":"x","best_of":4})"), "best_of");
  EXPECT_EQ(refused(R"({"prompt":"x","max_tokens":0})"), "max_tokens");
  EXPECT_EQ(refused(R"({"prompt":"x","max_tokens":18446744073709551615})"), "max_tokens");
  EXPECT_EQ(refused(R"({"prompt":"x","stop":""})"), "stop");
  EXPECT_EQ(refused(R"({"prompt":[100]})"), "prompt");
  EXPECT_EQ(refused(R"({"prompt":[-1]})"), "prompt");
  EXPECT_EQ(refused(R"({"prompt":[]})"), "prompt");
  EXPECT_EQ(refused(R"({"prompt":[1,"x"]})"), "prompt");
  EXPECT_EQ(refused(R"({})"), "prompt");
  EXPECT_EQ(refused(R"({"prompt":"x","logit_bias":{"100":1}})"), "logit_bias");
  EXPECT_EQ(refused(R"({"prompt":"x","stream_options":{"include_usage":true}})"), "stream_options");
  EXPECT_EQ(refused(R"({"prompt":"x","prompt_logprobs":1})"), "prompt_logprobs");
}

// Each field: values that are taken, and values that are refused with the field's name.
TEST(OpenAiParse, E07_EveryNumberHasARangeAndAType) {
  struct Case {
    const char* field;
    std::vector<const char*> good, bad;
  };
  const std::vector<Case> cases = {
      {"temperature", {"0", "2", "2.5", "1e-300"}, {"-0.1", "1e300", "\"1\"", "[1]", "true"}},
      {"top_p", {"1", "0.001"}, {"0", "1.001", "-1", "\"x\"", "1e-300"}},
      {"top_k", {"-1", "0", "5", "3.0"}, {"-2", "1.5", "\"5\"", "9999999999"}},
      {"min_p", {"0", "1"}, {"-0.1", "1.1", "{}"}},
      {"seed", {"-9223372036854775808", "9223372036854775807"}, {"9223372036854775808", "0.5"}},
      {"n", {"1", "128"}, {"0", "-1", "129", "1.5", "true"}},
      {"presence_penalty", {"-2", "2"}, {"-2.1", "2.1", "\"0\""}},
      {"frequency_penalty", {"-2", "2"}, {"-2.1", "2.1", "[]"}},
      {"repetition_penalty", {"0.1", "2"}, {"0", "-1", "\"1\"", "1e-300"}},
      {"logprobs", {"0", "20"}, {"-1", "21", "true", "\"1\""}},
      {"max_tokens", {"1", "2147483647"}, {"0", "-1", "2147483648", "1.5", "\"7\""}},
      {"min_tokens", {"0", "9"}, {"-1", "1.5", "2147483648"}},
      {"logit_bias",
       {"{}", R"({"0":100,"99":-100})"},
       {R"({"100":1})", R"({"-1":1})", R"({"a":1})", R"({"1":101})", R"({"1":"1"})", "[]"}},
      {"stop", {"[]", R"("a")", R"(["a","b"])"}, {R"([""])", "[1]", "7", R"({"a":1})"}},
      {"stop_token_ids", {"[]", "[0,99]"}, {"[100]", "[-1]", "[1.5]", "[\"1\"]", "1"}},
      {"ignore_eos", {"true", "false"}, {"1", "\"true\""}},
      {"stream", {"true"}, {"1", "\"true\""}},
      {"echo", {"true"}, {"0"}}};
  for (const Case& c : cases) {
    const auto body = [&](const char* value) {
      return concat(R"({"prompt":"x",")", c.field, "\":", value, "}");
    };
    for (const char* value : c.good) EXPECT_EQ(refused(body(value)), "ACCEPTED") << body(value);
    for (const char* value : c.bad) EXPECT_EQ(refused(body(value)), c.field) << body(value);
    EXPECT_EQ(refused(body("null")), "ACCEPTED") << c.field;
  }
  // Not JSON at all.
  EXPECT_EQ(refused(R"({"prompt":"x","temperature":NaN})"), "");
  EXPECT_EQ(refused(R"({"prompt":"x","temperature":1e999})"), "");
  EXPECT_EQ(refused(R"({"prompt":"x","min_tokens":5,"max_tokens":4})"), "min_tokens");
}

TEST(OpenAiParse, RefusesWhatChatsCannotDo) {
  const auto chat = [](const std::string& more) {
    return refused(R"({"messages":[{"role":"user","content":"hi"}])" + more + "}", true);
  };
  EXPECT_EQ(chat(""), "ACCEPTED");
  EXPECT_EQ(chat(R"(,"tools":[{"type":"function"}],"tool_choice":"auto")"), "ACCEPTED");
  EXPECT_EQ(chat(R"(,"tools":[{}],"tool_choice":"required")"), "tool_choice");
  EXPECT_EQ(chat(R"(,"response_format":{"type":"json_schema"})"), "response_format");
  EXPECT_EQ(chat(R"(,"response_format":{"type":"text"})"), "ACCEPTED");
  EXPECT_EQ(chat(R"(,"top_logprobs":3)"), "top_logprobs");
  EXPECT_EQ(chat(R"(,"logprobs":true,"top_logprobs":21)"), "top_logprobs");
  EXPECT_EQ(refused(R"({"messages":[]})", true), "messages");
  EXPECT_EQ(refused(R"({"messages":[{"content":"x"}]})", true), "messages[0].role");
  EXPECT_EQ(refused(R"({"messages":[{"role":"user","content":[{"type":"image_url"}]}]})", true),
            "messages[0].content");
}

TEST(OpenAiParse, JoinsTextPartsOfAMessage) {
  auto parsed = parse_chat_completion(
      R"({"messages":[{"role":"user","content":[{"type":"text","text":"a"},
                                                {"type":"text","text":"b"}]}]})",
      kTarget);
  const auto& request = std::get<OpenAiRequest>(parsed);
  EXPECT_EQ(request.request.chat->messages[0]["content"], "ab");
  EXPECT_FALSE(request.request.sampling.max_tokens.has_value());
}

TEST(OpenAiParse, E07_DeepAndLargeBodiesAreRefusedBeforeParsing) {
  const std::string deep = R"({"prompt":)" + std::string(200'000, '[');
  EXPECT_EQ(refused(deep), "");
  ParseTarget small = kTarget;
  small.limits.body_bytes = 10;
  EXPECT_TRUE(std::holds_alternative<Failure>(parse_completion(R"({"prompt":"x"})", small)));
}

TEST(OpenAiParse, E07_DamagedBodiesNeverCrash) {
  const std::string good =
      R"({"prompt":["a",[1,2]],"stop":["x"],"logit_bias":{"7":1},"n":2,"stream_options":{"a":1}})";
  std::mt19937 random(7);
  int refusals = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string body = good;
    for (int n = 1 + static_cast<int>(random() % 4); n > 0; --n) {
      const size_t at = random() % body.size();
      switch (random() % 3) {
        case 0:
          body[at] = static_cast<char>(random());
          break;
        case 1:
          body.erase(at, 1 + random() % 5);
          break;
        default:
          body.insert(at, body.substr(random() % body.size(), 6));
          break;
      }
      if (body.empty()) body = "x";
    }
    refusals += std::holds_alternative<Failure>(parse_completion(body, kTarget));
    refusals += std::holds_alternative<Failure>(parse_chat_completion(body, kTarget));
  }
  EXPECT_GT(refusals, 10000);
}

}  // namespace
}  // namespace cohort
