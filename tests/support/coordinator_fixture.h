// SPDX-License-Identifier: Apache-2.0
// A whole coordinator on free ports, with the byte tokenizer and short times.
#pragma once
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "coordinator/server.h"
#include "tests/support/fake_replica.h"
#include "tests/support/fake_tokenizer.h"
#include "tests/support/http_client.h"

namespace cohort {

using Json = nlohmann::json;

class CoordinatorTest : public testing::Test {
 protected:
  static std::shared_ptr<const ServedModel> fake_model(bool chat) {
    auto model = std::make_shared<ServedModel>();
    model->name = "fake";
    model->max_context = 1024;
    model->tokenizer = std::make_shared<FakeTokenizer>();
    if (chat) {
      auto parsed = ChatTemplate::parse(
          "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}[assistant]");
      EXPECT_TRUE(parsed.ok()) << parsed.status().to_string();
      model->chat_template = *std::move(parsed);
    }
    return model;
  }

  CoordinatorTest() {
    // Silence of a machine that is busy with other things must not pass for a death: tests of
    // silent replicas set times of their own.
    options_.service.replicas.suspect_after = std::chrono::seconds(30);
    options_.service.replicas.dead_after = std::chrono::seconds(60);
    options_.service.replicas.reconnect_grace = std::chrono::milliseconds(200);
    options_.service.replica_wait = std::chrono::seconds(60);
  }
  void start(bool chat = true) {
    auto server = Server::start(fake_model(chat), options_, [](const std::string&) {});
    ASSERT_TRUE(server.ok()) << server.status().to_string();
    server_ = *std::move(server);
  }
  std::unique_ptr<FakeReplica> replica(FakeReplicaOptions options = {}) {
    auto fake = std::make_unique<FakeReplica>(server_->session_port(), std::move(options));
    EXPECT_TRUE(fake->wait_connected());
    return fake;
  }
  HttpAnswer complete(const Json& body, const std::string& headers = {}) {
    return HttpClient(server_->http_port()).post("/v1/completions", body.dump(), headers);
  }
  // The prompt as the replica sees it.
  static std::vector<int32_t> ids(const std::string& text) {
    return FakeTokenizer().encode(text, {}, {});
  }
  template <class Condition>
  static bool eventually(Condition condition,
                         std::chrono::milliseconds limit = std::chrono::seconds(60)) {
    const Deadline deadline = Deadline::after(limit);
    while (!condition()) {
      if (deadline.expired()) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return true;
  }
  // The text of a streamed completion; checks that the stream ends as E24 promises.
  static std::string streamed_text(const HttpAnswer& answer, std::string* finish = nullptr) {
    std::string text;
    int finishes = 0;
    const auto events = answer.events();
    EXPECT_FALSE(events.empty());
    if (events.empty()) return text;
    EXPECT_EQ(events.back(), "[DONE]");
    for (size_t i = 0; i + 1 < events.size(); ++i) {
      const Json json = Json::parse(events[i]);
      if (json["choices"].empty()) continue;
      const Json& choice = json["choices"][0];
      text += choice.contains("text") ? choice["text"].get<std::string>()
                                      : choice["delta"].value("content", "");
      if (choice["finish_reason"].is_null()) continue;
      ++finishes;
      if (finish) *finish = choice["finish_reason"];
    }
    EXPECT_EQ(finishes, 1);
    return text;
  }

  ServerOptions options_;
  std::unique_ptr<Server> server_;
};

}  // namespace cohort
