// SPDX-License-Identifier: Apache-2.0
// The HTTP API against a replica that plays its part.
#include <gmock/gmock.h>

#include "tests/support/coordinator_fixture.h"

namespace cohort {
namespace {

using CompletionsTest = CoordinatorTest;
using std::chrono::milliseconds;

TEST_F(CompletionsTest, StreamsAndAnswersInOnePieceAlike) {
  start();
  const auto fake = replica();
  const std::string want = FakeReplica::letters(ids("hello"), 20);
  const HttpAnswer whole = complete({{"prompt", "hello"}, {"max_tokens", 20}});
  ASSERT_EQ(whole.status, 200) << whole.body;
  const Json json = Json::parse(whole.body);
  EXPECT_EQ(json["choices"][0]["text"], want);
  EXPECT_EQ(json["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(json["usage"]["prompt_tokens"], 6);
  EXPECT_EQ(json["usage"]["completion_tokens"], 20);
  std::string finish;
  const HttpAnswer stream = complete({{"prompt", "hello"}, {"max_tokens", 20}, {"stream", true}});
  EXPECT_EQ(streamed_text(stream, &finish), want);
  EXPECT_EQ(finish, "length");
}

TEST_F(CompletionsTest, E22_StopsAtAStopStringAlikeStreamedOrNot) {
  start();
  const auto fake = replica();
  const std::string text = FakeReplica::letters(ids("p"), 20);
  const std::string stop = text.substr(9, 3);
  const Json body = {{"prompt", "p"}, {"max_tokens", 500}, {"stop", stop}};
  Json streamed = body;
  streamed["stream"] = true;
  std::string finish;
  EXPECT_EQ(streamed_text(complete(streamed), &finish), text.substr(0, 9));
  EXPECT_EQ(finish, "stop");
  const Json whole = Json::parse(complete(body).body);
  EXPECT_EQ(whole["choices"][0]["text"], text.substr(0, 9));
  EXPECT_EQ(whole["choices"][0]["finish_reason"], "stop");
  EXPECT_TRUE(eventually([&] { return fake->active() == 0; }));
}

TEST_F(CompletionsTest, E22_LogprobsEndWhereTheTextEnds) {
  start();
  const auto fake = replica();  // a token is a letter
  const std::string text = FakeReplica::letters(ids("p"), 20);
  Json body = {{"prompt", "p"},
               {"max_tokens", 500},
               {"stop", text.substr(9, 3)},
               {"return_token_ids", true},
               {"logprobs", 0}};
  const Json choice = Json::parse(complete(body).body)["choices"][0];
  const auto joined = [](const Json& logprobs) {
    std::string out;
    for (const Json& token : logprobs["tokens"]) out += token.get<std::string>();
    return out;
  };
  EXPECT_EQ(joined(choice["logprobs"]), text.substr(0, 9));
  // The tokens of the stop string were generated, and their ids say so.
  EXPECT_EQ(choice["token_ids"].size(), 12U);
  body["stream"] = true;
  std::string streamed;
  for (const std::string& event : complete(body).events()) {
    if (event == "[DONE]") continue;
    const Json logprobs = Json::parse(event)["choices"][0]["logprobs"];
    if (!logprobs.is_null()) streamed += joined(logprobs);
  }
  EXPECT_EQ(streamed, text.substr(0, 9));
}

TEST_F(CompletionsTest, E24_EachStreamedChoiceFinishesOnceAndEchoesItsPrompt) {
  start();
  const auto fake = replica();
  const HttpAnswer answer = complete(
      {{"prompt", {"ab", "cd"}}, {"n", 3}, {"max_tokens", 7}, {"echo", true}, {"stream", true}});
  const auto events = answer.events();
  ASSERT_EQ(events.back(), "[DONE]");
  std::map<int, std::string> texts;
  std::map<int, int> finishes;
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    const Json choice = Json::parse(events[i])["choices"][0];
    const int index = choice["index"];
    EXPECT_EQ(finishes[index], 0) << "news after the end of choice " << index;
    texts[index] += choice["text"].get<std::string>();
    finishes[index] += choice["finish_reason"].is_null() ? 0 : 1;
  }
  ASSERT_EQ(texts.size(), 6U);
  for (const auto& [index, text] : texts) {
    const std::string prompt = index < 3 ? "ab" : "cd";
    EXPECT_EQ(text, prompt + FakeReplica::letters(ids(prompt), 7));
    EXPECT_EQ(finishes[index], 1);
  }
}

TEST_F(CompletionsTest, ManyChoicesPromptsAndLogprobs) {
  start();
  const auto fake = replica();
  const Json json = Json::parse(
      complete({{"prompt", {"a", "b"}}, {"n", 2}, {"max_tokens", 4}, {"logprobs", 2}}).body);
  ASSERT_EQ(json["choices"].size(), 4U) << json;
  for (int i = 0; i < 4; ++i) {
    const Json& choice = json["choices"][static_cast<size_t>(i)];
    EXPECT_EQ(choice["index"], i);
    EXPECT_EQ(choice["text"], FakeReplica::letters(ids(i < 2 ? "a" : "b"), 4));
    EXPECT_EQ(choice["logprobs"]["text_offset"], (Json{0, 1, 2, 3}));
    EXPECT_EQ(choice["logprobs"]["top_logprobs"][0].size(), 3U);
    EXPECT_FLOAT_EQ(choice["logprobs"]["token_logprobs"][0], -0.5F);
  }
  std::set<uint64_t> seeds;
  for (const auto& submit : fake->submits()) seeds.insert(submit.sampling().seed());
  EXPECT_EQ(seeds.size(), 4U);
}

TEST_F(CompletionsTest, ChatStreamHasRoleContentFinishAndUsage) {
  start();
  const auto fake = replica();
  const Json body = {{"messages", {{{"role", "user"}, {"content", "hi"}}}},
                     {"max_tokens", 5},
                     {"stream", true},
                     {"logprobs", true},
                     {"top_logprobs", 1},
                     {"stream_options", {{"include_usage", true}}}};
  HttpClient client(server_->http_port());
  const HttpAnswer answer = client.post("/v1/chat/completions", body.dump());
  std::string prompt = "[user]hi[assistant]";
  const std::vector<int32_t> tokens(prompt.begin(), prompt.end());
  EXPECT_EQ(streamed_text(answer), FakeReplica::letters(tokens, 5));
  const auto events = answer.events();
  const Json first = Json::parse(events.front());
  EXPECT_EQ(first["object"], "chat.completion.chunk");
  EXPECT_EQ(first["choices"][0]["delta"]["role"], "assistant");
  EXPECT_TRUE(first["usage"].is_null());
  const Json usage = Json::parse(events[events.size() - 2]);
  EXPECT_TRUE(usage["choices"].empty());
  EXPECT_EQ(usage["usage"]["completion_tokens"], 5);
  EXPECT_EQ(usage["id"], first["id"]);
  // The connection can be used again.
  EXPECT_EQ(client.get("/health").status, 200);
}

TEST_F(CompletionsTest, ChatWithoutATemplateSaysSo) {
  start(false);
  const auto fake = replica();
  const HttpAnswer answer =
      HttpClient(server_->http_port())
          .post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"hi"}]})");
  EXPECT_EQ(answer.status, 400);
  EXPECT_THAT(answer.body, testing::HasSubstr("no chat template"));
}

TEST_F(CompletionsTest, E07_WhatCannotBeServedIsA400BeforeTheFirstByte) {
  start();
  const auto fake = replica();
  const auto refused = [&](const Json& body) {
    const HttpAnswer answer = complete(body);
    EXPECT_EQ(answer.status, 400) << answer.body;
    return Json::parse(answer.body)["error"].value("param", "");
  };
  const std::string longer(2000, 'x');
  EXPECT_EQ(refused({{"prompt", longer}, {"stream", true}}), "prompt");
  EXPECT_EQ(refused({{"prompt", "x"}, {"max_tokens", 5000}, {"stream", true}}), "max_tokens");
  EXPECT_EQ(refused({{"prompt", "x"}, {"min_tokens", 5000}}), "min_tokens");
  EXPECT_EQ(refused({{"prompt", {1, 300}}}), "prompt");
  EXPECT_EQ(refused({{"prompt", ""}, {"add_special_tokens", false}}), "prompt");
  const HttpAnswer chat =
      HttpClient(server_->http_port())
          .post("/v1/chat/completions",
                Json{{"messages", {{{"role", "user"}, {"content", longer}}}}}.dump());
  EXPECT_EQ(chat.status, 400);
  EXPECT_EQ(Json::parse(chat.body)["error"]["param"], "messages");
  EXPECT_EQ(complete({{"prompt", "x"}, {"model", "other"}}).status, 404);
  EXPECT_EQ(fake->submits().size(), 0U);
}

TEST_F(CompletionsTest, E14_AClientThatLeavesFreesItsPlace) {
  start();
  FakeReplicaOptions slow;
  slow.token_interval = milliseconds(5);
  const auto fake = replica(slow);
  for (const bool stream : {true, false}) {
    HttpClient client(server_->http_port());
    const std::string body = Json{{"prompt", "x"}, {"max_tokens", 900}, {"stream", stream}}.dump();
    client.send("POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Length: " +
                std::to_string(body.size()) + "\r\n\r\n" + body);
    ASSERT_TRUE(eventually([&] { return fake->active() == 1; }));
    if (stream) client.receive_until("data: ");
    client.close();
    EXPECT_TRUE(eventually([&] { return fake->active() == 0; }, milliseconds(1000)));
    EXPECT_TRUE(eventually([&] { return server_->service().open_sequences() == 0; }));
  }
  EXPECT_EQ(fake->cancels(), 2);
}

TEST_F(CompletionsTest, E15_RandomAbortsLeaveTheOthersUnchangedAndNothingBehind) {
  start();
  const auto fake = replica();
  std::vector<std::thread> clients;
  std::atomic<int> good{0};
  for (int t = 0; t < 4; ++t) {
    clients.emplace_back([&, t] {
      for (int i = 0; i < 25; ++i) {
        const std::string prompt = "p" + std::to_string(t * 100 + i);
        const std::string body =
            Json{{"prompt", prompt}, {"max_tokens", 30}, {"stream", true}}.dump();
        HttpClient client(server_->http_port());
        client.send("POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Length: " +
                    std::to_string(body.size()) + "\r\n\r\n" + body);
        if (i % 3 == 0) {
          if (i % 2 == 0) client.receive_until("data: ");
          continue;
        }
        good += streamed_text(client.receive()) == FakeReplica::letters(ids(prompt), 30);
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(good, 4 * 16);
  EXPECT_TRUE(eventually([&] { return server_->service().open_sequences() == 0; }));
  EXPECT_TRUE(eventually([&] { return fake->active() == 0; }));
}

TEST_F(CompletionsTest, E17_AFullQueueAnswersAtOnce) {
  options_.service.admission.queued_sequences = 4;
  start();  // no replica: everything waits
  std::vector<std::unique_ptr<HttpClient>> waiting;
  const std::string body = R"({"prompt":"x"})";
  for (int i = 0; i < 4; ++i) {
    waiting.push_back(std::make_unique<HttpClient>(server_->http_port()));
    waiting.back()->send("POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Length: " +
                         std::to_string(body.size()) + "\r\n\r\n" + body);
  }
  ASSERT_TRUE(eventually([&] { return server_->service().open_sequences() == 4; }));
  // The median, because the machine may be busy with other tests.
  std::vector<double> took;
  for (int i = 0; i < 25; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    const HttpAnswer answer = complete({{"prompt", std::string(64 << 10, 'x')}});
    took.push_back(seconds(std::chrono::steady_clock::now() - begin));
    EXPECT_EQ(answer.status, 503);
    EXPECT_THAT(answer.head, testing::HasSubstr("Retry-After: "));
    EXPECT_EQ(Json::parse(answer.body)["error"]["type"], "service_unavailable_error");
  }
  std::nth_element(took.begin(), took.begin() + 12, took.end());
  EXPECT_LT(took[12], 0.050);
  waiting.clear();
  EXPECT_TRUE(eventually([&] { return server_->service().open_sequences() == 0; }));
}

TEST_F(CompletionsTest, E17_ATenantsLimitIsA429) {
  options_.service.admission.tenant_sequences = 2;
  start();
  const auto fake = replica();
  const HttpAnswer answer = complete({{"prompt", "x"}, {"n", 3}, {"user", "u"}});
  EXPECT_EQ(answer.status, 429);
  EXPECT_THAT(answer.head, testing::HasSubstr("Retry-After: "));
  EXPECT_EQ(complete({{"prompt", "x"}, {"n", 2}, {"user", "u"}}).status, 200);
}

TEST_F(CompletionsTest, E18_ADeadlineEndsARequestInQueueAndInFlight) {
  start();
  const HttpAnswer queued = complete({{"prompt", "x"}}, "x-request-timeout: 0.1\r\n");
  EXPECT_EQ(queued.status, 408) << queued.body;
  EXPECT_THAT(queued.head, testing::HasSubstr("x-should-retry: false"));
  FakeReplicaOptions slow;
  slow.token_interval = milliseconds(20);
  const auto fake = replica(slow);
  const HttpAnswer late = complete({{"prompt", "x"}, {"max_tokens", 900}, {"stream", true}},
                                   "x-request-timeout: 0.5\r\n");
  ASSERT_FALSE(late.events().empty());
  EXPECT_THAT(late.events().back(), testing::HasSubstr("timeout_error"));
  EXPECT_TRUE(eventually([&] { return fake->active() == 0; }, milliseconds(500)));
}

TEST_F(CompletionsTest, E18_ADeadlineThatCannotBeMetIsRefusedAtOnce) {
  start();
  const auto fake = replica();
  ASSERT_TRUE(eventually([&] { return server_->service().view()->ready() == 1; }));
  // The replica reports 0.1 ms per token, so 1000 tokens take 0.1 s.
  const HttpAnswer answer = complete({{"prompt", std::string(1000, 'x')}, {"max_tokens", 2}},
                                     "x-request-timeout: 0.05\r\n");
  EXPECT_EQ(answer.status, 408);
  EXPECT_THAT(answer.body, testing::HasSubstr("would come after"));
  EXPECT_EQ(fake->submits().size(), 0U);
}

TEST_F(CompletionsTest, E23_CharactersOfManyTokensArriveWhole) {
  start();
  const std::string text = "né 你好 🦀!";
  FakeReplicaOptions options;
  options.token = [text](const std::vector<int32_t>&, int i) {
    return static_cast<size_t>(i) < text.size()
               ? static_cast<int32_t>(static_cast<unsigned char>(text[static_cast<size_t>(i)]))
               : FakeTokenizer::kEos;
  };
  const auto fake = replica(options);
  std::string finish;
  // Json::parse inside throws on invalid UTF-8 in any chunk.
  EXPECT_EQ(
      streamed_text(complete({{"prompt", "x"}, {"max_tokens", 100}, {"stream", true}}), &finish),
      text);
  EXPECT_EQ(finish, "stop");
}

TEST_F(CompletionsTest, E24_AnErrorMidStreamIsAnEventAndNotAFinish) {
  options_.service.most_attempts = 1;
  start();
  auto fake = replica();
  HttpClient client(server_->http_port());
  const std::string body = R"({"prompt":"x","max_tokens":900,"stream":true})";
  client.send("POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Length: " +
              std::to_string(body.size()) + "\r\n\r\n" + body);
  ASSERT_TRUE(eventually([&] { return fake->active() == 1; }));
  fake->die();
  const HttpAnswer answer = client.receive();
  EXPECT_EQ(answer.status, answer.events().size() > 1 ? 200 : answer.status);
  EXPECT_THAT(answer.body, testing::HasSubstr("\"error\""));
  EXPECT_THAT(answer.body, testing::Not(testing::HasSubstr("[DONE]")));
  EXPECT_THAT(answer.body, testing::Not(testing::HasSubstr("\"finish_reason\":\"")));
}

TEST_F(CompletionsTest, E24_SilenceIsFilledWithComments) {
  options_.http_limits.ping = milliseconds(300);
  start();  // no replica: the request waits
  HttpClient client(server_->http_port());
  const std::string body = R"({"prompt":"x","max_tokens":3,"stream":true})";
  client.send("POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Length: " +
              std::to_string(body.size()) + "\r\n\r\n" + body);
  EXPECT_THAT(client.receive_until(": ping\n\n"), testing::HasSubstr("200 OK"));
  const auto fake = replica();
  EXPECT_THAT(client.receive_until("[DONE]"), testing::HasSubstr("\"finish_reason\":\"length\""));
}

TEST_F(CompletionsTest, StoppingEndsOpenStreamsWithAnError) {
  start();
  FakeReplicaOptions slow;
  slow.token_interval = milliseconds(20);
  const auto fake = replica(slow);
  HttpClient client(server_->http_port());
  const std::string body = R"({"prompt":"x","max_tokens":900,"stream":true})";
  client.send("POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Length: " +
              std::to_string(body.size()) + "\r\n\r\n" + body);
  client.receive_until("data: ");
  server_->stop(milliseconds(100));
  EXPECT_THAT(client.receive_until("shutting down"), testing::HasSubstr("\"error\""));
}

}  // namespace
}  // namespace cohort
