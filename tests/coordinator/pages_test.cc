// SPDX-License-Identifier: Apache-2.0
// Everything of the HTTP API but generation, against a replica that plays its part.
#include <gmock/gmock.h>

#include <thread>

#include "tests/support/coordinator_fixture.h"

namespace cohort {
namespace {

using PagesTest = CoordinatorTest;
using std::chrono::milliseconds;

TEST_F(PagesTest, PagesForPeopleAndProbes) {
  start();
  HttpClient client(server_->http_port());
  EXPECT_EQ(client.get("/ready").status, 503);
  FakeReplicaOptions options;
  const auto fake = replica(options);
  ASSERT_TRUE(eventually([&] { return client.get("/ready").status == 200; }));
  const Json replicas = Json::parse(client.get("/admin/replicas").body);
  EXPECT_EQ(replicas[0]["state"], "READY");
  EXPECT_EQ(replicas[0]["ranks"][1]["host"], "fakehost");
  EXPECT_EQ(Json::parse(client.get("/v1/models").body)["data"][0]["id"], "fake");
  EXPECT_EQ(client.get("/v1/models/fake").status, 200);
  EXPECT_EQ(client.get("/v1/models/none").status, 404);
  EXPECT_EQ(client.get("/nowhere").status, 404);
  const HttpAnswer wrong = client.get("/v1/completions");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(Json::parse(wrong.body)["error"]["code"], 405);
  EXPECT_THAT(wrong.head, testing::HasSubstr("Allow: POST"));
  // A probe with HEAD gets the headers alone, and the connection stays in step.
  HttpClient probe(server_->http_port());
  probe.send("HEAD /ready HTTP/1.1\r\nHost: t\r\n\r\nGET /version HTTP/1.1\r\nHost: t\r\n\r\n");
  EXPECT_THAT(probe.receive_until("\"version\""), testing::Not(testing::HasSubstr("\"ready\"")));
  const Json tokens = Json::parse(client.post("/tokenize", R"({"prompt":"ab"})").body);
  EXPECT_EQ(tokens["tokens"], (Json{FakeTokenizer::kBos, 'a', 'b'}));
  EXPECT_EQ(tokens["count"], 3);
  EXPECT_EQ(Json::parse(client.post("/detokenize", R"({"tokens":[97,98]})").body)["prompt"], "ab");
  const std::string metrics = client.get("/metrics").body;
  EXPECT_THAT(metrics, testing::HasSubstr("cohort_num_requests_running"));
  EXPECT_THAT(metrics, testing::HasSubstr("state=\"READY\"} 1"));
}

TEST_F(PagesTest, MetricsTellWhereTheTimeOfRanksWent) {
  start();
  HttpClient client(server_->http_port());
  const auto fake = replica({});
  ASSERT_TRUE(eventually([&] { return client.get("/ready").status == 200; }));
  // A counter that is asked for twice does not count twice.
  (void)client.get("/metrics");
  const std::string metrics = client.get("/metrics").body;
  EXPECT_THAT(metrics, testing::HasSubstr("# TYPE cohort_rank_compute_seconds_total counter"));
  const auto value = [&](const std::string& name) {
    const size_t at = metrics.find("\ncohort_rank_" + name + "{");
    const std::string line = metrics.substr(at + 1, metrics.find('\n', at + 1) - at - 1);
    EXPECT_THAT(line, testing::HasSubstr("host=\"fakehost\""));
    EXPECT_THAT(line, testing::HasSubstr("replica="));
    return line.substr(line.rfind(' ') + 1) + (line.find("rank=\"1\"") != line.npos ? " of 1" : "");
  };
  EXPECT_THAT(value("compute_seconds_total"), testing::AnyOf("20", "21 of 1"));
  EXPECT_THAT(value("communication_seconds_total"), testing::AnyOf("5", "5 of 1"));
  EXPECT_THAT(value("hidden_communication_seconds_total"), testing::AnyOf("3.5", "3.5 of 1"));
  EXPECT_THAT(value("idle_seconds_total"), testing::AnyOf("1.5", "1.5 of 1"));
  EXPECT_THAT(value("bytes_sent_total"), testing::AnyOf("1048576", "1048576 of 1"));
}

TEST_F(PagesTest, MetricsTellHowExpertsAreLoaded) {
  start();
  HttpClient client(server_->http_port());
  const auto fake = replica({});
  ASSERT_TRUE(eventually([&] { return client.get("/ready").status == 200; }));
  (void)client.get("/metrics");  // asked for twice, it does not count twice
  const std::string metrics = client.get("/metrics").body;
  const auto has = [&](const std::string& text) {
    EXPECT_NE(metrics.find(text + "\n"), metrics.npos) << text;
  };
  has(R"(expert="0",layer="2",replica="replica-0"} 7)");
  has(R"(expert="2",layer="2",replica="replica-0"} 11)");
  EXPECT_EQ(metrics.find(R"(expert="1")"), metrics.npos);  // never chosen
  has(R"(cohort_expert_imbalance{model_name="fake",replica="replica-0"} 1.25)");
  has(R"(cohort_expert_copies{model_name="fake",replica="replica-0"} 3)");
}

// Nothing else is asked for between two pictures of the replicas: it would order the threads, and
// hide from sanitizers a page that reads a picture after it has let go of it.
TEST_F(PagesTest, APageHoldsThePictureThatItShows) {
  start();
  const auto fake = replica({});
  HttpClient client(server_->http_port());
  ASSERT_TRUE(eventually([&] { return client.get("/ready").status == 200; }));
  for (const char* path : {"/admin/replicas", "/ready", "/metrics"}) {
    EXPECT_THAT(client.get(path).body, testing::HasSubstr("replica")) << path;
    std::this_thread::sleep_for(milliseconds(300));  // the next pictures come meanwhile
  }
}

TEST_F(PagesTest, E04_AStuckRankTurnsReadinessOffAndIsNamed) {
  options_.service.replicas.stall = milliseconds(1000);
  start();
  FakeReplicaOptions stuck;
  stuck.stuck_rank_ms = 2000;
  const auto fake = replica(stuck);
  HttpClient client(server_->http_port());
  ASSERT_TRUE(eventually(
      [&] { return client.get("/ready").body.find("rank 1 on fakehost") != std::string::npos; }));
  EXPECT_EQ(client.get("/ready").status, 503);
}

TEST_F(PagesTest, TokenizesTextAndChats) {
  start();
  HttpClient client(server_->http_port());
  const auto tokenize = [&](const Json& body) {
    const HttpAnswer answer = client.post("/tokenize", body.dump());
    EXPECT_EQ(answer.status, 200) << answer.body;
    return Json::parse(answer.body);
  };
  const Json plain = tokenize({{"prompt", "ab"}, {"add_special_tokens", false}});
  EXPECT_EQ(plain["tokens"], (Json{'a', 'b'}));
  EXPECT_TRUE(plain["token_strs"].is_null());
  EXPECT_EQ(plain["max_model_len"], 1024);
  EXPECT_EQ(tokenize({{"prompt", "ab"},
                      {"add_special_tokens", false},
                      {"return_token_strs", true}})["token_strs"],
            (Json{"a", "b"}));
  const Json messages = {{{"role", "user"}, {"content", "hi"}}};
  EXPECT_EQ(tokenize({{"messages", messages}})["count"], std::string("[user]hi[assistant]").size());
}

TEST_F(PagesTest, TokenizingRefusesAsCompletionsDo) {
  start();
  HttpClient client(server_->http_port());
  const auto refused = [&](const char* path, const std::string& body) {
    const HttpAnswer answer = client.post(path, body);
    EXPECT_GE(answer.status, 400) << body;
    const Json error = Json::parse(answer.body)["error"];
    EXPECT_EQ(error["code"], answer.status);
    EXPECT_EQ(error["type"], "invalid_request_error");
    return error["param"].is_null() ? std::string() : error["param"].get<std::string>();
  };
  EXPECT_EQ(refused("/tokenize", R"({})"), "prompt");
  EXPECT_EQ(refused("/tokenize", R"({"prompt":7})"), "prompt");
  EXPECT_EQ(refused("/tokenize", R"({"prompt":"x","model":"other"})"), "model");
  EXPECT_EQ(refused("/tokenize", R"({"messages":[]})"), "messages");
  EXPECT_EQ(refused("/tokenize", R"(not json)"), "");
  EXPECT_EQ(refused("/detokenize", R"({})"), "tokens");
  EXPECT_EQ(refused("/detokenize", R"({"tokens":[1,"2"]})"), "tokens");
  EXPECT_EQ(refused("/detokenize", R"({"tokens":[99999]})"), "tokens");
}

TEST_F(PagesTest, WhileStoppingNobodyNewComesInAndReadinessIsOff) {
  start();
  FakeReplicaOptions slow;
  slow.token_interval = milliseconds(20);
  const auto fake = replica(slow);
  HttpClient open(server_->http_port()), streaming(server_->http_port());
  ASSERT_TRUE(eventually([&] { return open.get("/ready").status == 200; }));
  const std::string body = R"({"prompt":"x","max_tokens":100,"stream":true})";
  streaming.send("POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Length: " +
                 std::to_string(body.size()) + "\r\n\r\n" + body);
  streaming.receive_until("data: ");
  std::thread stopping([&] { server_->stop(std::chrono::seconds(20)); });
  EXPECT_TRUE(eventually([&] { return open.get("/ready").status == 503; }, milliseconds(1000)));
  HttpClient fresh(server_->http_port());
  EXPECT_THAT(fresh.get("/ready").body, testing::HasSubstr("shutting down"));
  EXPECT_EQ(fresh.get("/health").status, 200);
  const HttpAnswer refused = complete({{"prompt", "x"}});
  EXPECT_EQ(refused.status, 503);
  EXPECT_THAT(refused.head, testing::HasSubstr("Retry-After: "));
  // Who was in before is served to the end.
  EXPECT_THAT(streaming.receive_until("[DONE]"),
              testing::HasSubstr("\"finish_reason\":\"length\""));
  fresh.close();
  open.close();
  streaming.close();
  stopping.join();
}

}  // namespace
}  // namespace cohort
