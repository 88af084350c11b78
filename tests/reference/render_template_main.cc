// SPDX-License-Identifier: Apache-2.0
// Renders chat templates for comparison with other implementations: one JSON object a line in,
//   {"template", "messages", "tools", "bos", "eos", "add_generation_prompt", "extra", "now"}
// one a line out: {"text", "literal": [[begin, end], ...]} or {"error", "code"}.
#include <iostream>
#include <nlohmann/json.hpp>

#include "model/chat_template.h"

namespace cohort {
namespace {

using Json = nlohmann::ordered_json;

Json failure(const Status& status) {
  return {{"error", status.message()}, {"code", name(status.code())}};
}

Json render(const Json& request) {
  auto parsed = ChatTemplate::parse(request.at("template").get<std::string>());
  if (!parsed.ok()) return failure(parsed.status());
  const Json extra = request.value("extra", Json::object());
  TemplateInputs inputs{.messages = request.at("messages")};
  if (request.contains("tools") && !request["tools"].is_null()) inputs.tools = &request["tools"];
  inputs.add_generation_prompt = request.value("add_generation_prompt", true);
  inputs.bos_token = request.value("bos", "<s>");
  inputs.eos_token = request.value("eos", "</s>");
  inputs.extra = &extra;
  if (request.contains("now")) inputs.now = request["now"].get<std::time_t>();
  const auto rendered = (*parsed)->render(inputs);
  if (!rendered.ok()) return failure(rendered.status());
  Json answer{{"text", rendered->text}, {"literal", Json::array()}};
  for (const TextRange& range : rendered->literal) {
    answer["literal"].push_back({range.begin, range.end});
  }
  return answer;
}

}  // namespace
}  // namespace cohort

int main() {
  std::string line;
  while (std::getline(std::cin, line)) {
    std::cout << cohort::render(cohort::Json::parse(line)).dump() << "\n" << std::flush;
  }
}
