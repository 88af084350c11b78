// SPDX-License-Identifier: Apache-2.0
#include "tools/chat_command.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "tools/http_client.h"

namespace cohort {
namespace {

using nlohmann::json;

struct ChatOptions {
  std::string address = "127.0.0.1:8000";
  std::string system = "You are a helpful AI assistant.", once;
  double temperature = 0.7;
  int max_tokens = 0;
  int64_t seed = -1;
};

json make_request(const ChatOptions& options, const json& messages) {
  json request = {{"messages", messages}, {"stream", true}, {"temperature", options.temperature}};
  if (options.max_tokens > 0) request["max_tokens"] = options.max_tokens;
  if (options.seed >= 0) request["seed"] = options.seed;
  return request;
}

// Prints the answer as it arrives; returns it whole.
Result<std::string> ask(const HttpClient& client, const ChatOptions& options,
                        const json& messages) {
  std::string answer;
  Status failure;
  const Status status = client.stream(
      "/v1/chat/completions", make_request(options, messages).dump(), [&](const std::string& data) {
        if (data == "[DONE]") return false;
        const json event = json::parse(data, nullptr, false);
        if (event.is_object() && event.contains("error")) {
          failure = unavailable(event["error"].value("message", data));
          return false;
        }
        if (!event.is_object() || event["choices"].empty()) return true;
        const json& delta = event["choices"][0]["delta"];
        const auto content = delta.find("content");
        if (content == delta.end() || !content->is_string()) return true;
        const std::string text = content->get<std::string>();
        std::fwrite(text.data(), 1, text.size(), stdout);
        std::fflush(stdout);
        answer += text;
        return true;
      });
  if (status.ok() || !answer.empty()) std::fputc('\n', stdout);
  if (!status.ok()) return status;
  if (!failure.ok()) return failure;
  return answer;
}

int report(const Status& status) {
  std::fprintf(stderr, "cohort chat: %s\n", status.message().c_str());
  return 1;
}

int converse(const ChatOptions& options) {
  const HttpClient client(options.address);
  json messages = json::array();
  if (!options.system.empty())
    messages.push_back({{"role", "system"}, {"content", options.system}});
  if (!options.once.empty()) {
    messages.push_back({{"role", "user"}, {"content", options.once}});
    auto answer = ask(client, options, messages);
    return answer.ok() ? 0 : report(answer.status());
  }
  const bool terminal = isatty(STDIN_FILENO) != 0;
  if (terminal) std::puts("An empty line or Ctrl-D ends the conversation.");
  for (std::string line;;) {
    if (terminal) std::fputs("> ", stdout), std::fflush(stdout);
    if (!std::getline(std::cin, line) || line.empty()) return 0;
    messages.push_back({{"role", "user"}, {"content", line}});
    auto answer = ask(client, options, messages);
    if (!answer.ok()) return report(answer.status());
    messages.push_back({{"role", "assistant"}, {"content", *answer}});
  }
}

}  // namespace

void add_chat_command(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<ChatOptions>();
  CLI::App* chat = app.add_subcommand("chat", "Talk to a running cluster");
  chat->add_option("--address", options->address, "HTTP address of the coordinator")
      ->capture_default_str();
  chat->add_option("--system", options->system,
                   "System message; \"\" leaves it to the model's template")
      ->capture_default_str();
  chat->add_option("--once", options->once, "Ask this one question and exit");
  chat->add_option("--temperature", options->temperature, "0 takes the likeliest token each time")
      ->check(CLI::Range(0.0, 2.0))
      ->capture_default_str();
  chat->add_option("--max-tokens", options->max_tokens, "Length of an answer at most");
  chat->add_option("--seed", options->seed, "The same seed gives the same answer");
  chat->callback([options, &exit_code] { exit_code = converse(*options); });
}

}  // namespace cohort
