// SPDX-License-Identifier: Apache-2.0
#include "tools/model_command.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "model/checkpoint.h"
#include "tools/model_store.h"

namespace cohort {
namespace {

// Keys in the order in which they are written.
using json = nlohmann::ordered_json;

struct ModelOptions {
  std::string model;
  bool as_json = false, list_tensors = false;
};

std::string shape_of(const WeightInfo& weight) {
  return weight.rows == 1 ? concat(weight.columns) : concat(weight.rows, " x ", weight.columns);
}

json rope_json(const RopeConfig& rope) {
  json out = {{"pairing", rope.pairing == RopePairing::halves ? "halves" : "neighbours"},
              {"dims", rope.dims},
              {"theta", rope.theta},
              {"scaling", "none"}};
  if (rope.linear_factor != 1) {
    out["scaling"] = "linear";
    out["factor"] = rope.linear_factor;
  }
  if (rope.llama3) {
    out["scaling"] = "llama3";
    out["factor"] = rope.llama3->factor;
    out["original_context"] = rope.llama3->original_context;
  }
  if (!rope.frequency_divisors.empty()) out["scaling"] = "divisors";
  return out;
}

json types_json(const Checkpoint& checkpoint) {
  std::map<std::string_view, std::pair<int64_t, int64_t>> types;  // count, bytes
  for (const WeightInfo& weight : checkpoint.weights()) {
    types[name(weight.dtype)].first++;
    types[name(weight.dtype)].second += weight.bytes();
  }
  json out = json::object();
  for (const auto& [type, sums] : types)
    out[std::string(type)] = {{"tensors", sums.first}, {"bytes", sums.second}};
  return out;
}

json tokenizer_json(const Checkpoint& checkpoint) {
  const auto tokenizer = checkpoint.tokenizer();
  if (!tokenizer.ok()) return {{"error", tokenizer.status().message()}};
  json end_tokens = json::array();
  for (const TokenId id : (*tokenizer)->end_tokens())
    end_tokens.push_back({{"id", id}, {"text", (*tokenizer)->token_bytes(id)}});
  return {{"description", (*tokenizer)->description()},
          {"tokens", (*tokenizer)->vocab_size()},
          {"end_tokens", end_tokens},
          {"chat_template", (*tokenizer)->chat_template().has_value()}};
}

json tensors_json(const Checkpoint& checkpoint) {
  json out = json::array();
  for (const WeightInfo& weight : checkpoint.weights())
    out.push_back({{"name", weight.name},
                   {"source", weight.source_name},
                   {"type", name(weight.dtype)},
                   {"shape", shape_of(weight)},
                   {"bytes", weight.bytes()}});
  return out;
}

json describe(const Checkpoint& checkpoint, bool tensors) {
  const ModelConfig& c = checkpoint.config();
  int64_t parameters = 0;
  for (const WeightInfo& weight : checkpoint.weights()) parameters += weight.rows * weight.columns;
  json out = {{"path", checkpoint.path()},
              {"format", checkpoint.format()},
              {"name", c.name},
              {"family", c.family},
              {"parameters", parameters},
              {"bytes", checkpoint.total_weight_bytes()},
              {"layers", c.layers},
              {"hidden", c.hidden},
              {"heads", c.heads},
              {"kv_heads", c.kv_heads},
              {"head_dim", c.head_dim},
              {"ffn", c.ffn},
              {"vocab", c.vocab},
              {"context", c.context},
              {"norm_eps", c.norm_eps},
              {"tied_embedding", c.tied_embedding},
              {"rope", rope_json(c.rope)},
              {"types", types_json(checkpoint)},
              {"tokenizer", tokenizer_json(checkpoint)},
              {"fingerprint", checkpoint.fingerprint()}};
  if (tensors) out["tensors"] = tensors_json(checkpoint);
  return out;
}

std::string megabytes(int64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f MB", double(bytes) / 1e6);
  return text;
}

void print_tokenizer(const json& about) {
  if (about.contains("error")) {
    std::cout << "tokenizer    " << about["error"].get<std::string>() << '\n';
    return;
  }
  std::cout << "tokenizer    " << about["description"].get<std::string>() << "\nends with   ";
  for (const json& token : about["end_tokens"])
    std::cout << ' ' << token["text"].get<std::string>() << " (" << token["id"] << ')';
  std::cout << "\ntemplate     " << (about["chat_template"].get<bool>() ? "present" : "none")
            << '\n';
}

// The same facts as the JSON, for people.
void print_text(const json& about) {
  const auto text = [&](const char* key) { return about[key].get<std::string>(); };
  const auto number = [&](const char* key) { return about[key].get<int64_t>(); };
  std::cout << "model        " << text("name") << " (" << text("path") << ")\n"
            << "format       " << text("format") << ", family " << text("family") << '\n'
            << "size         " << double(number("parameters")) / 1e6 << " million parameters in "
            << megabytes(number("bytes")) << '\n'
            << "layers       " << number("layers") << ", hidden " << number("hidden")
            << ", feed-forward " << number("ffn") << '\n'
            << "attention    " << number("heads") << " heads over " << number("kv_heads")
            << " key-value heads of " << number("head_dim") << " dimensions\n"
            << "vocabulary   " << number("vocab") << " tokens, head "
            << (about["tied_embedding"].get<bool>() ? "tied to" : "apart from")
            << " the embedding table\n"
            << "context      " << number("context") << " positions, rope theta "
            << about["rope"]["theta"].get<double>() << ", scaling "
            << about["rope"]["scaling"].get<std::string>() << '\n';
  for (const auto& [type, sums] : about["types"].items())
    std::cout << "weights      " << sums["tensors"] << " x " << type << ", "
              << megabytes(sums["bytes"].get<int64_t>()) << '\n';
  print_tokenizer(about["tokenizer"]);
  std::cout << "fingerprint  " << text("fingerprint") << '\n';
  if (!about.contains("tensors")) return;
  for (const json& tensor : about["tensors"])
    std::cout << "  " << tensor["name"].get<std::string>() << "  "
              << tensor["type"].get<std::string>() << "  " << tensor["shape"].get<std::string>()
              << "  (" << tensor["source"].get<std::string>() << ")\n";
}

int run_model(const ModelOptions& options) {
  const Result<std::string> path = resolve_model(options.model);
  auto checkpoint =
      path.ok() ? Checkpoint::open(*path) : Result<std::unique_ptr<Checkpoint>>(path.status());
  if (!checkpoint.ok()) {
    std::cerr << "cohort model: " << checkpoint.status().message() << '\n';
    return 1;
  }
  const json about = describe(**checkpoint, options.list_tensors);
  // Names come from the file and need not be UTF-8.
  if (options.as_json)
    std::cout << about.dump(2, ' ', false, json::error_handler_t::replace) << '\n';
  else
    print_text(about);
  return 0;
}

}  // namespace

void add_model_command(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<ModelOptions>();
  CLI::App* command = app.add_subcommand("model", "Show what is in a checkpoint");
  command
      ->add_option("-m,--model,model", options->model,
                   "a .gguf or .safetensors file, a folder of safetensors, or a known model's name")
      ->required();
  command->add_flag("--json", options->as_json, "as JSON");
  command->add_flag("--tensors", options->list_tensors, "list every tensor");
  command->callback([options, &exit_code] { exit_code = run_model(*options); });
}

}  // namespace cohort
