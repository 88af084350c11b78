// SPDX-License-Identifier: Apache-2.0
// tokenizer_vectors FOLDER: every vocabulary ggml-vocab-*.gguf in the folder must give, for each
// text of its .inp file, the ids of the same line of its .out file (made without control tokens and
// without bos); those without such files must give every text back when decoded. WordPiece and
// unigram vocabularies must be refused with a message that says so. Exits 0 if all of that holds.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "model/gguf.h"
#include "model/tokenizer.h"

namespace cohort {
namespace {

constexpr const char* kSeparator = "\n__ggml_vocab_test__\n";
constexpr int kVocabularies = 19, kRefused = 2;

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> texts_of(const std::string& path) {
  std::string all = read(path);
  std::vector<std::string> texts;
  const std::string separator = kSeparator;
  for (size_t at = 0; at < all.size();) {  // nothing follows the last separator, where there is one
    const size_t end = std::min(all.find(separator, at), all.size());
    texts.push_back(all.substr(at, end - at));
    at = end + separator.size();
  }
  return texts;
}

std::vector<std::vector<TokenId>> ids_of(const std::string& path) {
  std::vector<std::vector<TokenId>> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    lines.emplace_back(std::istream_iterator<TokenId>(words), std::istream_iterator<TokenId>());
  }
  return lines;
}

std::string show(const std::vector<TokenId>& ids) {
  std::string out;
  for (TokenId id : ids) out += " " + std::to_string(id);
  return out;
}

// The number of texts that came out wrong.
int compare(const Tokenizer& tokenizer, const std::string& path) {
  const std::vector<std::string> texts = texts_of(path + ".inp");
  const auto expected = ids_of(path + ".out");
  if (texts.size() < 40 || texts.size() != expected.size()) {
    std::cout << path << ": " << texts.size() << " texts but " << expected.size() << " answers\n";
    return 1;
  }
  int wrong = 0;
  for (size_t i = 0; i < texts.size(); i++) {
    const auto ids = tokenizer.encode(texts[i], {.parse_special = false, .add_special = false});
    if (ids == expected[i]) continue;
    wrong++;
    std::cout << path << ": text " << i << " gives\n " << show(ids) << "\ninstead of\n "
              << show(expected[i]) << "\n";
  }
  return wrong;
}

int round_trip(const Tokenizer& tokenizer, const std::vector<std::string>& texts) {
  int wrong = 0;
  for (const std::string& text : texts) {
    const auto ids = tokenizer.encode(text, {.parse_special = false, .add_special = false});
    if (tokenizer.decode(ids, false) == text) continue;
    wrong++;
    std::cout << "does not come back: " << text << "\n";
  }
  return wrong;
}

struct Tally {
  int vectors = 0, round_trips = 0, refused = 0, failed = 0;
};

void check(const std::string& path, const std::vector<std::string>& texts, Tally& tally) {
  const auto file = GgufFile::open(path);
  if (!file.ok()) {
    std::cout << file.status().message() << "\n";
    tally.failed++;
    return;
  }
  const auto tokenizer = Tokenizer::from_gguf(**file);
  if (!tokenizer.ok()) {
    const std::string& message = tokenizer.status().message();
    std::cout << message << "\n";
    const bool named = message.find("WordPiece") != std::string::npos ||
                       message.find("unigram") != std::string::npos;
    const bool clear = tokenizer.status().code() == Code::kUnimplemented && named;
    (clear ? tally.refused : tally.failed)++;
    return;
  }
  const bool has_vectors = std::filesystem::exists(path + ".out");
  const int wrong = has_vectors ? compare(**tokenizer, path) : round_trip(**tokenizer, texts);
  std::cout << path << ": " << (*tokenizer)->description() << ": "
            << (wrong         ? "WRONG"
                : has_vectors ? "as expected"
                              : "comes back")
            << "\n";
  (wrong ? tally.failed : has_vectors ? tally.vectors : tally.round_trips)++;
}

int run(const std::string& folder) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().filename().string().starts_with("ggml-vocab-") &&
        entry.path().extension() == ".gguf")
      paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  const auto texts = texts_of(folder + "/ggml-vocab-gpt-2.gguf.inp");
  Tally tally;
  for (const std::string& path : paths) check(path, texts, tally);
  std::cout << tally.vectors << " vocabularies give the expected ids, " << tally.round_trips
            << " give texts back, " << tally.refused << " are refused, " << tally.failed
            << " fail\n";
  return tally.failed == 0 && tally.refused == kRefused && int(paths.size()) == kVocabularies ? 0
                                                                                              : 1;
}

}  // namespace
}  // namespace cohort

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: tokenizer_vectors FOLDER\n";
    return 2;
  }
  return cohort::run(argv[1]);
}
