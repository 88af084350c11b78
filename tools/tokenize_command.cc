// SPDX-License-Identifier: Apache-2.0
#include "tools/tokenize_command.h"

#include <CLI/CLI.hpp>
#include <charconv>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <memory>
#include <vector>

#include "model/checkpoint.h"
#include "model/gguf.h"
#include "model/tokenizer.h"
#include "tools/model_store.h"

namespace cohort {
namespace {

struct TokenizeOptions {
  std::string model;
  bool decode = false, special = false;
};

// Only the tokenizer is wanted: a model that Cohort cannot run may still have one that it can.
Result<std::unique_ptr<Tokenizer>> load_tokenizer(const std::string& model) {
  COHORT_ASSIGN_OR_RETURN(const std::string path, resolve_model(model));
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored))
    return Tokenizer::from_json_file((std::filesystem::path(path) / "tokenizer.json").string());
  if (path.ends_with(".json")) return Tokenizer::from_json_file(path);
  if (path.ends_with(".safetensors"))
    return Tokenizer::from_json_file(
        (std::filesystem::path(path).parent_path() / "tokenizer.json").string());
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<GgufFile> file, GgufFile::open(path));
  return Tokenizer::from_gguf(*file);
}

// Ids between blanks, commas or brackets, so that a JSON array is read as well.
Result<std::vector<TokenId>> parse_ids(std::string_view text) {
  constexpr std::string_view kBetween = " \t\r\n,[]";
  std::vector<TokenId> ids;
  for (size_t at = 0; (at = text.find_first_not_of(kBetween, at)) != std::string_view::npos;) {
    const std::string_view word = text.substr(at, text.find_first_of(kBetween, at) - at);
    TokenId id = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (error != std::errc() || end != word.data() + word.size())
      return invalid_argument(concat("'", word.substr(0, 40), "' is not a token id"));
    ids.push_back(id);
    at += word.size();
  }
  return ids;
}

Result<std::string> convert(const TokenizeOptions& options, const std::string& input) {
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer,
                          load_tokenizer(options.model));
  if (options.decode) {
    COHORT_ASSIGN_OR_RETURN(const std::vector<TokenId> ids, parse_ids(input));
    for (const TokenId id : ids)
      if (id < 0 || id >= tokenizer->vocab_size())
        return invalid_argument(
            concat("token id ", id, " is not within the ", tokenizer->vocab_size(), " tokens"));
    return tokenizer->decode(ids, /*skip_special=*/!options.special);
  }
  std::string line;
  for (const TokenId id :
       tokenizer->encode(input, {.parse_special = options.special, .add_special = false}))
    line += concat(line.empty() ? "" : " ", id);
  return line + "\n";
}

int run_tokenize(const TokenizeOptions& options) {
  const std::string input(std::istreambuf_iterator<char>(std::cin), {});
  const Result<std::string> output = convert(options, input);
  if (!output.ok()) {
    std::cerr << "cohort tokenize: " << output.status().message() << '\n';
    return 1;
  }
  std::cout << *output << std::flush;
  return 0;
}

}  // namespace

void add_tokenize_command(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<TokenizeOptions>();
  CLI::App* command = app.add_subcommand(
      "tokenize", "Turn text on standard input into token ids, or ids into text");
  command
      ->add_option("-m,--model", options->model,
                   "a .gguf file, a tokenizer.json, a folder with one, or a known model's name")
      ->required();
  command->add_flag("--decode", options->decode, "read ids, write text");
  command->add_flag("--special", options->special,
                    "control tokens: recognise them in text, show them when decoding");
  command->callback([options, &exit_code] { exit_code = run_tokenize(*options); });
}

}  // namespace cohort
