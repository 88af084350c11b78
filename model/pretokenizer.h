// SPDX-License-Identifier: Apache-2.0
// What happens to text before byte-pair merging: normalizers rewrite it, pre-tokenizers cut it into
// pieces that merges never cross. The steps and their meaning are those of Hugging Face's
// tokenizer.json; the names of GGUF files (pretokenizer_table.h) are short for lists of such steps.
#pragma once
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/status.h"
#include "model/pretokenizer_regex.h"

namespace cohort {

// A text and the pieces it has been cut into so far: ascending, never empty, not overlapping.
struct PiecedText {
  std::string text;
  std::vector<TextRange> pieces;
  bool at_start = false;  // the text begins where the whole input does
};

// What a normalizer or a pre-tokenizer looks for.
struct TextPattern {
  std::variant<std::string, Regex> what;  // a string matches itself
  void find_all(std::string_view text, TextRange within, std::vector<TextRange>& matches) const;
};

enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

struct SplitStep {
  TextPattern pattern;
  SplitBehavior behavior = SplitBehavior::isolated;
  bool invert = false;  // the pieces are what the pattern does not match
};

// Bytes become printable characters (GPT-2's table); regex: GPT-2's split first.
struct ByteLevelStep {
  bool add_prefix_space = false;
  std::optional<Regex> regex;
};

enum class PrependScheme { never, first, always };

struct MetaspaceStep {
  std::string replacement;
  PrependScheme prepend = PrependScheme::always;
  bool split = true;
};

// Runs of decimal digits in groups of three counted from their right end.
struct DigitGroupsStep {
  Regex runs;
};
inline constexpr std::string_view kDigitGroupsPattern = "\\d{1,3}(?=(?:\\d{3})*\\b)";
// word_end: only runs that no letter follows. Then the step equals isolating kDigitGroupsPattern,
// whose lookahead takes quadratic time.
Result<DigitGroupsStep> make_digit_groups(bool word_end);

using PreTokenizerStep = std::variant<SplitStep, ByteLevelStep, MetaspaceStep, DigitGroupsStep>;

void apply_step(const PreTokenizerStep& step, PiecedText& text);

// The split of GPT-2, and the table that shows every byte as one printable character.
inline constexpr std::string_view kGpt2Pattern =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
const std::array<std::string, 256>& byte_characters();
// The bytes that a token of a byte-level vocabulary stands for; nullopt where a character is not of
// the table.
std::optional<std::string> bytes_of_characters(std::string_view token);

}  // namespace cohort
