// SPDX-License-Identifier: Apache-2.0
#include "tools/template_command.h"

#include <CLI/CLI.hpp>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>

#include "model/chat_template.h"
#include "model/checkpoint.h"
#include "tools/model_store.h"

namespace cohort {
namespace {

using Json = nlohmann::ordered_json;

struct TemplateOptions {
  std::string model, template_file, messages, tools;
  bool generation_prompt = false;
  std::string bos = "<s>", eos = "</s>";
  bool bos_given = false, eos_given = false;
};

Result<std::string> read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return not_found("cannot read " + path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

Result<Json> read_json_array(const std::string& path) {
  COHORT_ASSIGN_OR_RETURN(const std::string text, read_text(path));
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_array()) return invalid_argument(path + " must hold a JSON array");
  return json;
}

// The model's template and tokens, where the options do not say otherwise.
Result<std::string> source_of_model(TemplateOptions& options) {
  COHORT_ASSIGN_OR_RETURN(const std::string path, resolve_model(options.model));
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Checkpoint> model, Checkpoint::open(path));
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer, model->tokenizer());
  const auto text_of = [&](const std::optional<TokenId>& id) {
    return id ? tokenizer->token_bytes(*id) : std::string();
  };
  if (!options.bos_given) options.bos = text_of(tokenizer->bos());
  if (!options.eos_given) options.eos = text_of(tokenizer->eos());
  if (!options.template_file.empty()) return read_text(options.template_file);
  if (!tokenizer->chat_template()) {
    return not_found(options.model + " has no chat template; give one with --template");
  }
  return *tokenizer->chat_template();
}

Result<std::string> render(TemplateOptions options) {
  COHORT_ASSIGN_OR_RETURN(const std::string source, options.model.empty()
                                                        ? read_text(options.template_file)
                                                        : source_of_model(options));
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<ChatTemplate> chat, ChatTemplate::parse(source));
  COHORT_ASSIGN_OR_RETURN(const Json messages, read_json_array(options.messages));
  Json tools;
  if (!options.tools.empty()) {
    COHORT_ASSIGN_OR_RETURN(tools, read_json_array(options.tools));
  }
  TemplateInputs inputs{.messages = messages};
  if (!options.tools.empty()) inputs.tools = &tools;
  inputs.add_generation_prompt = options.generation_prompt;
  inputs.bos_token = options.bos;
  inputs.eos_token = options.eos;
  COHORT_ASSIGN_OR_RETURN(RenderedChat chat_text, chat->render(inputs));
  return std::move(chat_text.text);
}

int run_template(const TemplateOptions& options) {
  const Result<std::string> text = render(options);
  if (!text.ok()) {
    std::cerr << "cohort template: " << text.status().message() << '\n';
    return 1;
  }
  std::cout << *text << std::flush;
  return 0;
}

}  // namespace

void add_template_command(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<TemplateOptions>();
  CLI::App* command =
      app.add_subcommand("template", "Print the prompt that a chat template makes of messages");
  auto* source = command->add_option_group("source", "where the template comes from");
  source->add_option("--model", options->model, "model whose template and tokens are used");
  source->add_option("--template", options->template_file, "file with a Jinja template");
  source->require_option(1, 2);
  command->add_option("--messages", options->messages, "JSON file with an array of messages")
      ->required();
  command->add_option("--tools", options->tools, "JSON file with an array of tools");
  command->add_flag("--generation-prompt", options->generation_prompt,
                    "end with the start of the assistant's answer");
  auto* bos = command->add_option("--bos", options->bos, "text of the beginning token");
  auto* eos = command->add_option("--eos", options->eos, "text of the end token");
  command->callback([options, bos, eos, &exit_code] {
    options->bos_given = bos->count() > 0;
    options->eos_given = eos->count() > 0;
    exit_code = run_template(*options);
  });
}

}  // namespace cohort
