// SPDX-License-Identifier: Apache-2.0
// The normalizers and pre-tokenizers of tokenizer.json.
#include <nlohmann/json.hpp>

#include "model/tokenizer_json.h"

namespace cohort {
namespace {

using nlohmann::json;

constexpr int kMaxDepth = 8;  // of sequences within sequences
constexpr size_t kMaxSteps = 64;

// {"String": "..."} or {"Regex": "..."}.
Result<TextPattern> parse_pattern(const json& node) {
  const json& text = json_member(node, "String");
  if (text.is_string()) return TextPattern{text.get<std::string>()};
  const json& regex = json_member(node, "Regex");
  if (!regex.is_string()) return invalid_argument("a pattern is neither String nor Regex");
  COHORT_ASSIGN_OR_RETURN(Regex compiled, Regex::compile(regex.get<std::string>()));
  return TextPattern{std::move(compiled)};
}

Result<Regex> compile(const char* pattern) { return Regex::compile(pattern); }

Result<SplitBehavior> parse_behavior(const std::string& name) {
  if (name == "Removed") return SplitBehavior::removed;
  if (name == "Isolated") return SplitBehavior::isolated;
  if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
  if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
  if (name == "Contiguous") return SplitBehavior::contiguous;
  return unimplemented("split behavior \"" + name + "\"");
}

Status add_normalizer(const json& node, int depth, std::vector<NormalizerStep>& out);

Status add_normalizers(const json& list, int depth, std::vector<NormalizerStep>& out) {
  if (!list.is_array()) return invalid_argument("a normalizer sequence without a list");
  for (const json& step : list) COHORT_RETURN_IF_ERROR(add_normalizer(step, depth + 1, out));
  return {};
}

Status add_normalizer(const json& node, int depth, std::vector<NormalizerStep>& out) {
  if (node.is_null()) return {};
  if (depth > kMaxDepth || out.size() >= kMaxSteps) return invalid_argument("too many normalizers");
  const std::string type = json_string(node, "type");
  if (type == "Sequence") return add_normalizers(json_member(node, "normalizers"), depth, out);
  if (type == "NFC") {
    out.push_back(NormalForm::nfc);
  } else if (type == "NFD") {
    out.push_back(NormalForm::nfd);
  } else if (type == "NFKC") {
    out.push_back(NormalForm::nfkc);
  } else if (type == "NFKD") {
    out.push_back(NormalForm::nfkd);
  } else if (type == "Prepend") {
    out.push_back(PrependStep{json_string(node, "prepend")});
  } else if (type == "Strip") {
    out.push_back(
        StripStep{json_bool(node, "strip_left", true), json_bool(node, "strip_right", true)});
  } else if (type == "Replace") {
    COHORT_ASSIGN_OR_RETURN(TextPattern pattern, parse_pattern(json_member(node, "pattern")));
    out.push_back(ReplaceStep{std::move(pattern), json_string(node, "content")});
  } else {
    return unimplemented("normalizer \"" + type + "\"");
  }
  return {};
}

Result<PreTokenizerStep> parse_split(const json& node) {
  const json& pattern_node = json_member(node, "pattern");
  const bool invert = json_bool(node, "invert", false);
  COHORT_ASSIGN_OR_RETURN(const SplitBehavior behavior,
                          parse_behavior(json_string(node, "behavior")));
  if (json_string(pattern_node, "Regex") == kDigitGroupsPattern && !invert &&
      behavior == SplitBehavior::isolated) {
    COHORT_ASSIGN_OR_RETURN(DigitGroupsStep groups, make_digit_groups(true));
    return PreTokenizerStep(std::move(groups));
  }
  COHORT_ASSIGN_OR_RETURN(TextPattern pattern, parse_pattern(pattern_node));
  return PreTokenizerStep(SplitStep{std::move(pattern), behavior, invert});
}

Result<PreTokenizerStep> parse_byte_level(const json& node) {
  ByteLevelStep step{json_bool(node, "add_prefix_space", true), std::nullopt};
  if (json_bool(node, "use_regex", true)) {
    COHORT_ASSIGN_OR_RETURN(step.regex, Regex::compile(std::string(kGpt2Pattern)));
  }
  return PreTokenizerStep(std::move(step));
}

Result<PreTokenizerStep> parse_metaspace(const json& node) {
  MetaspaceStep step;
  step.replacement = json_string(node, "replacement", "\xe2\x96\x81");
  if (step.replacement.empty() || step.replacement == " ")
    return invalid_argument("a Metaspace without a replacement");
  step.split = json_bool(node, "split", true);
  const std::string scheme = json_string(
      node, "prepend_scheme", json_bool(node, "add_prefix_space", true) ? "always" : "never");
  if (scheme == "first")
    step.prepend = PrependScheme::first;
  else if (scheme == "never")
    step.prepend = PrependScheme::never;
  else if (scheme != "always")
    return unimplemented("Metaspace prepend_scheme \"" + scheme + "\"");
  return PreTokenizerStep(std::move(step));
}

Result<PreTokenizerStep> regex_split(const char* pattern, SplitBehavior behavior, bool invert) {
  COHORT_ASSIGN_OR_RETURN(Regex regex, compile(pattern));
  return PreTokenizerStep(SplitStep{{std::move(regex)}, behavior, invert});
}

Result<PreTokenizerStep> parse_punctuation(const json& node) {
  COHORT_ASSIGN_OR_RETURN(const SplitBehavior behavior,
                          parse_behavior(json_string(node, "behavior", "Isolated")));
  return regex_split("[\\p{P}!-/:-@\\x5b-`{-~]", behavior, false);
}

Result<PreTokenizerStep> parse_step(const json& node) {
  const std::string type = json_string(node, "type");
  if (type == "Split") return parse_split(node);
  if (type == "ByteLevel") return parse_byte_level(node);
  if (type == "Metaspace") return parse_metaspace(node);
  if (type == "Punctuation") return parse_punctuation(node);
  if (type == "Digits")
    return regex_split("\\p{N}",
                       json_bool(node, "individual_digits", false) ? SplitBehavior::isolated
                                                                   : SplitBehavior::contiguous,
                       false);
  if (type == "Whitespace") return regex_split("\\w+|[^\\w\\s]+", SplitBehavior::removed, true);
  if (type == "WhitespaceSplit") return regex_split("\\s", SplitBehavior::removed, false);
  return unimplemented("pre-tokenizer \"" + type + "\"");
}

Status add_steps(const json& node, int depth, std::vector<PreTokenizerStep>& out) {
  if (node.is_null()) return {};
  if (depth > kMaxDepth || out.size() >= kMaxSteps)
    return invalid_argument("too many pre-tokenizers");
  if (json_string(node, "type") == "Sequence") {
    const json& list = json_member(node, "pretokenizers");
    if (!list.is_array()) return invalid_argument("a pre-tokenizer sequence without a list");
    for (const json& step : list) COHORT_RETURN_IF_ERROR(add_steps(step, depth + 1, out));
    return {};
  }
  COHORT_ASSIGN_OR_RETURN(PreTokenizerStep step, parse_step(node));
  out.push_back(std::move(step));
  return {};
}

}  // namespace

std::string json_string(const json& node, const char* key, std::string fallback) {
  const json& member = json_member(node, key);
  return member.is_string() ? member.get<std::string>() : std::move(fallback);
}

bool json_bool(const json& node, const char* key, bool fallback) {
  const json& member = json_member(node, key);
  return member.is_boolean() ? member.get<bool>() : fallback;
}

const json& json_member(const json& node, const char* key) {
  static const json null;
  if (!node.is_object()) return null;
  const auto found = node.find(key);
  return found == node.end() ? null : *found;
}

Result<std::vector<NormalizerStep>> parse_normalizers(const json& node) {
  std::vector<NormalizerStep> out;
  COHORT_RETURN_IF_ERROR(add_normalizer(node, 0, out));
  return out;
}

Result<std::vector<PreTokenizerStep>> parse_pretokenizers(const json& node) {
  std::vector<PreTokenizerStep> out;
  COHORT_RETURN_IF_ERROR(add_steps(node, 0, out));
  return out;
}

}  // namespace cohort
