// SPDX-License-Identifier: Apache-2.0
#include "model/chat_template.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "model/jinja/interpreter.h"
#include "model/jinja/parser.h"

namespace cohort {
namespace {

using jinja::Budget;
using jinja::TemplateError;
using jinja::Value;
using Json = nlohmann::ordered_json;

Status to_status(const TemplateError& error) {
  const std::string where = error.line > 0
                                ? "chat template line " + std::to_string(error.line) + ": "
                                : "chat template: ";
  return {error.code, where + error.message};
}

Value value_of(const Json& json, Budget& budget, int depth);

Value dict_of(const Json& json, Budget& budget, int depth) {
  auto dict = std::make_shared<jinja::Dict>();
  for (const auto& [key, member] : json.items()) {
    dict->set(Value(jinja::make_text(key, true)), value_of(member, budget, depth));
  }
  return Value(jinja::DictPtr(std::move(dict)));
}

// Strings from outside are literal. Nesting is checked before the recursion goes on.
Value value_of(const Json& json, Budget& budget, int depth) {
  budget.step();
  if (depth > 150) jinja::fail_limit("the messages are nested too deeply");
  switch (json.type()) {
    case Json::value_t::boolean:
      return Value(json.get<bool>());
    case Json::value_t::number_integer:
      return Value(json.get<int64_t>());
    case Json::value_t::number_unsigned: {
      const auto number = json.get<uint64_t>();
      if (number > static_cast<uint64_t>(INT64_MAX)) return Value(static_cast<double>(number));
      return Value(static_cast<int64_t>(number));
    }
    case Json::value_t::number_float:
      return Value(json.get<double>());
    case Json::value_t::string: {
      const auto& text = json.get_ref<const std::string&>();
      budget.make_text(text.size(), text.size());
      return Value(jinja::make_text(text, true));
    }
    case Json::value_t::array: {
      std::vector<Value> items;
      for (const Json& item : json) items.push_back(value_of(item, budget, depth + 1));
      return jinja::make_sequence(jinja::Flavor::kList, std::move(items));
    }
    case Json::value_t::object:
      return dict_of(json, budget, depth + 1);
    default:
      return Value();
  }
}

// These are the model's own words, not the user's, and may be part of control tokens.
bool is_known_role(const Json& role) {
  return role == "system" || role == "user" || role == "assistant" || role == "tool";
}

Value message_of(const Json& message, Budget& budget) {
  if (!message.is_object()) return value_of(message, budget, 1);
  auto dict = std::make_shared<jinja::Dict>();
  for (const auto& [key, member] : message.items()) {
    const bool role = key == "role" && is_known_role(member);
    dict->set(Value(jinja::make_text(key, true)),
              role ? Value::text(member.get<std::string>()) : value_of(member, budget, 2));
  }
  return Value(jinja::DictPtr(std::move(dict)));
}

class JinjaChatTemplate : public ChatTemplate {
 public:
  JinjaChatTemplate(jinja::Body body, const TemplateLimits& limits)
      : body_(std::move(body)), limits_(limits) {}

  Result<RenderedChat> render(const TemplateInputs& inputs) const override {
    if (!inputs.messages.is_array()) return invalid_argument("messages must be an array");
    if (inputs.extra && !inputs.extra->is_object() && !inputs.extra->is_null()) {
      return invalid_argument("template variables must be an object");
    }
    Budget budget(limits_.steps, limits_.output_bytes);
    try {
      jinja::Interpreter interpreter(budget, limits_.depth, inputs.now);
      const jinja::TextPtr text = interpreter.run(body_, variables(inputs, budget));
      return RenderedChat{text->bytes, text->literal};
    } catch (const TemplateError& error) {
      return to_status(error);
    }
  }

 private:
  // As Hugging Face names them. What `extra` says about these is not looked at.
  static std::vector<std::pair<std::string_view, Value>> variables(const TemplateInputs& inputs,
                                                                   Budget& budget) {
    std::vector<std::pair<std::string_view, Value>> all;
    if (inputs.extra && inputs.extra->is_object()) {
      for (auto member = inputs.extra->begin(); member != inputs.extra->end(); ++member) {
        budget.step();
        all.emplace_back(member.key(), value_of(member.value(), budget, 1));
      }
    }
    std::vector<Value> messages;
    for (const Json& message : inputs.messages) messages.push_back(message_of(message, budget));
    all.emplace_back("messages", jinja::make_sequence(jinja::Flavor::kList, std::move(messages)));
    all.emplace_back("tools", inputs.tools ? value_of(*inputs.tools, budget, 1) : Value());
    all.emplace_back("add_generation_prompt", Value(inputs.add_generation_prompt));
    all.emplace_back("bos_token", Value::text(inputs.bos_token));
    all.emplace_back("eos_token", Value::text(inputs.eos_token));
    const bool documents =
        inputs.extra && inputs.extra->is_object() && inputs.extra->contains("documents");
    if (!documents) all.emplace_back("documents", Value());
    return all;
  }

  const jinja::Body body_;
  const TemplateLimits limits_;
};

}  // namespace

Result<std::unique_ptr<ChatTemplate>> ChatTemplate::parse(std::string_view source,
                                                          const TemplateLimits& limits) {
  if (source.size() > limits.source_bytes) {
    return resource_exhausted("the chat template has more than " +
                              std::to_string(limits.source_bytes) + " bytes");
  }
  try {
    jinja::Parser parser(jinja::tokenize(source), limits.depth);
    return std::unique_ptr<ChatTemplate>(
        std::make_unique<JinjaChatTemplate>(parser.parse(), limits));
  } catch (const TemplateError& error) {
    return to_status(error);
  }
}

}  // namespace cohort
