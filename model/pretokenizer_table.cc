// SPDX-License-Identifier: Apache-2.0
#include "model/pretokenizer_table.h"

#include <algorithm>

namespace cohort {
namespace {

// Each split isolates its matches, as the models' own tokenizer.json files do.
constexpr std::string_view kDigit = "\\p{N}";
constexpr std::string_view kDigits3 = "\\p{N}{1,3}";
constexpr std::string_view kThreeAscii = "[0-9][0-9][0-9]";
constexpr std::string_view kNewline = "[\r\n]";
constexpr std::string_view kLines = "[^\\n]+|[\\n]+";
constexpr std::string_view kKana = "[一-龥\u3040-ゟ゠-ヿ]+";
constexpr std::string_view kAsian = "[一-龥ࠀ-一가-\ud7ff]+";

// The family of cl100k: contractions in either case, a word with one sign before it, numbers of
// at most three digits, signs, line ends, other space.
constexpr std::string_view kLlama3 =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|"
    " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
constexpr std::string_view kQwen2 =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|"
    " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
constexpr std::string_view kQwen35 =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}|"
    " ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
constexpr std::string_view kSeedCoder =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}|"
    " ?[^\\s\\p{L}\\p{N}\\r\\n]+|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
constexpr std::string_view kBailing =
    "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}|"
    " ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+";
constexpr std::string_view kMiniCpm =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}+|"
    " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
// Words cut at a change from lower to upper case (o200k and Tekken).
constexpr std::string_view kTekken =
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+|"
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*|"
    "\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
constexpr std::string_view kGpt4o =
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+"
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*"
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    "\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
constexpr std::string_view kDeepSeek3 =
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|"
    "[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|"
    "\\s+(?!\\S)|\\s+";
constexpr std::string_view kFalconSigns = "[\\p{P}\\$\\+<=>\\^~\\|`]+";
constexpr std::string_view kDefaultSigns = "[\\p{P}\\$\\+<=>\\^~\\|]+";
constexpr std::string_view kBloom = " ?[^(\\s|.,!?…。，、।۔،)]+";

// The cased letters as deepseek-llm lists them: fewer than \\p{L}, and not by any property.
constexpr std::string_view kDeepSeekLetters =
    "\\s?["
    "A-Za-z\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}\\x{1bc}-\\x{1bf}\\x{1c4}-"
    "\\x{293}\\x{295}-\\x{2af}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37b}-\\x{37d}\\x{37f}"
    "\\x{386}\\x{388}-\\x{38a}\\x{38c}\\x{38e}-\\x{3a1}\\x{3a3}-\\x{3f5}\\x{3f7}-\\x{481}"
    "\\x{48a}-\\x{52f}\\x{531}-\\x{556}\\x{10a0}-\\x{10c5}\\x{13a0}-\\x{13f5}\\x{13f8}-"
    "\\x{13fd}\\x{1c90}-\\x{1cba}\\x{1cbd}-\\x{1cbf}\\x{1d00}-\\x{1d2b}\\x{1d6b}-\\x{1d77}"
    "\\x{1d79}-\\x{1d9a}\\x{1e00}-\\x{1f15}\\x{1f18}-\\x{1f1d}\\x{1f20}-\\x{1f45}\\x{1f48}-"
    "\\x{1f4d}\\x{1f50}-\\x{1f57}\\x{1f59}\\x{1f5b}\\x{1f5d}\\x{1f5f}-\\x{1f7d}\\x{1f80}-"
    "\\x{1fb4}\\x{1fb6}-\\x{1fbc}\\x{1fbe}\\x{1fc2}-\\x{1fc4}\\x{1fc6}-\\x{1fcc}\\x{1fd0}-"
    "\\x{1fd3}\\x{1fd6}-\\x{1fdb}\\x{1fe0}-\\x{1fec}\\x{1ff2}-\\x{1ff4}\\x{1ff6}-\\x{1ffc}"
    "\\x{2102}\\x{2107}\\x{210a}-\\x{2113}\\x{2115}\\x{2119}-\\x{211d}\\x{2124}\\x{2126}"
    "\\x{2128}\\x{212a}-\\x{212d}\\x{212f}-\\x{2134}\\x{2139}\\x{213c}-\\x{213f}\\x{2145}-"
    "\\x{2149}\\x{214e}\\x{2183}\\x{2184}\\x{2c00}-\\x{2c7b}\\x{2c7e}-\\x{2ce4}\\x{2ceb}-"
    "\\x{2cee}\\x{2cf2}\\x{2cf3}\\x{a640}-\\x{a66d}\\x{a680}-\\x{a69b}\\x{a722}-\\x{a76f}"
    "\\x{a771}-\\x{a787}\\x{a78b}-\\x{a78e}\\x{ab70}-\\x{abbf}\\x{fb00}-\\x{fb06}\\x{fb13}-"
    "\\x{fb17}\\x{ff21}-\\x{ff3a}\\x{ff41}-\\x{ff5a}\\x{10400}-\\x{1044f}\\x{104b0}-"
    "\\x{104d3}\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}\\x{10cc0}-\\x{10cf2}\\x{118a0}-"
    "\\x{118df}\\x{1e900}-\\x{1e943}"
    "]+";
constexpr std::string_view kDeepSeekSigns =
    "\\s?["
    "!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}\\x{3000}-\\x{3002}"
    "]+";

struct Entry {
  std::string_view name;
  std::vector<std::string_view> patterns;
  bool ignore_merges = false;
  bool add_bos = false;
};

// Stand-ins for a DigitGroupsStep in a list of patterns.
constexpr std::string_view kGroups = "digit groups";
constexpr std::string_view kGroupsWord = "digit groups before a word end";

std::vector<Entry> table() {
  std::vector<Entry> entries;
  const auto add = [&](std::initializer_list<std::string_view> names,
                       std::vector<std::string_view> patterns, bool ignore_merges = false,
                       bool add_bos = false) {
    for (std::string_view name : names) entries.push_back({name, patterns, ignore_merges, add_bos});
  };
  add({"default"}, {kDefaultSigns, kGpt2Pattern, "\\p{N}+", kThreeAscii});
  add({"gpt-2", "gpt2", "phi-2", "jina-es", "jina-de", "jina-v2-es", "jina-v2-de", "gigachat",
       "a.x-4.0", "mellum", "modern-bert", "mpt", "olmo", "jais", "trillion", "granite-docling",
       "exaone4"},
      {kGpt2Pattern});
  add({"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b",
       "mellum2"},
      {kDigit, kGpt2Pattern});
  add({"llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"},
      {kLlama3}, true, true);
  add({"dbrx", "smaug-bpe", "chatglm-bpe"}, {kLlama3});
  add({"glm4", "glm5"}, {kLlama3}, true);
  add({"qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "megrez", "stablelm2", "hunyuan",
       "solar-open", "grok-2"},
      {kQwen2});
  add({"qwen35"}, {kQwen35});
  add({"laguna"}, {kLines, kQwen2});
  add({"seed-coder"}, {kSeedCoder});
  add({"bailingmoe", "bailingmoe2", "llada-moe"}, {kBailing});
  add({"minicpm5"}, {kDigits3, kMiniCpm}, true);
  add({"tekken"}, {kTekken}, true, true);
  add({"gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"}, {kGpt4o});
  add({"tiny_aya", "cohere2moe"}, {kGroupsWord, kGpt4o});
  add({"superbpe"}, {"\\p{N}+", kGroups});
  add({"deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"}, {kDigits3, kKana, kDeepSeek3});
  add({"deepseek-llm"}, {kNewline, kDeepSeekLetters, kDeepSeekSigns, "\\s+$", kAsian, "\\p{N}+"});
  add({"deepseek-coder"}, {kNewline, "\\s?\\p{L}+", "\\s?\\p{P}+", kAsian, kDigit});
  add({"falcon"}, {kFalconSigns, kGpt2Pattern, kThreeAscii});
  add({"poro-chat", "bloom", "gpt3-finnish"}, {kBloom});
  add({"viking"}, {kBloom, kDigit});
  return entries;
}

Result<PreTokenizerStep> make_step(std::string_view pattern) {
  if (pattern == kGroups || pattern == kGroupsWord) {
    COHORT_ASSIGN_OR_RETURN(DigitGroupsStep step, make_digit_groups(pattern == kGroupsWord));
    return PreTokenizerStep(std::move(step));
  }
  COHORT_ASSIGN_OR_RETURN(Regex regex, Regex::compile(std::string(pattern)));
  return PreTokenizerStep(SplitStep{{std::move(regex)}, SplitBehavior::isolated, false});
}

}  // namespace

Result<NamedPreTokenizer> named_pretokenizer(std::string_view name) {
  const std::vector<Entry> entries = table();
  const auto found = std::find_if(entries.begin(), entries.end(),
                                  [&](const Entry& entry) { return entry.name == name; });
  if (found == entries.end())
    return unimplemented(concat("unknown pre-tokenizer \"", name,
                                "\"; convert the model again with a current converter, or use its "
                                "tokenizer.json"));
  NamedPreTokenizer result{{}, found->ignore_merges, found->add_bos};
  for (std::string_view pattern : found->patterns) {
    COHORT_ASSIGN_OR_RETURN(PreTokenizerStep step, make_step(pattern));
    result.steps.push_back(std::move(step));
  }
  result.steps.push_back(ByteLevelStep{});
  return result;
}

}  // namespace cohort
