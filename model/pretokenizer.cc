// SPDX-License-Identifier: Apache-2.0
#include "model/pretokenizer.h"

#include "base/utf8.h"

namespace cohort {

namespace {

// Printable bytes of Latin-1 stand for themselves, the others for U+0100 onwards in their order.
std::array<std::string, 256> make_byte_characters() {
  std::array<std::string, 256> table;
  char32_t next = 256;
  for (uint32_t b = 0; b < 256; b++) {
    const bool printable = (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
    utf8_append(table[b], printable ? char32_t(b) : next++);
  }
  return table;
}

// 68 bytes are not printable, so the table ends before U+0144.
constexpr size_t kByteCharacterEnd = 0x144;

// The byte that each character stands for, or -1.
std::array<int16_t, kByteCharacterEnd> make_character_bytes() {
  std::array<int16_t, kByteCharacterEnd> table;
  table.fill(-1);
  for (uint32_t b = 0; b < 256; b++) table[utf8_next(byte_characters()[b]).code] = int16_t(b);
  return table;
}

struct Span {
  TextRange range;
  bool match;
};

// The piece as matched and unmatched spans. Empty matches stay: they separate what they lie
// between.
std::vector<Span> spans_of(TextRange piece, const std::vector<TextRange>& matches, bool invert) {
  std::vector<Span> spans;
  size_t at = piece.begin;
  for (const TextRange& match : matches) {
    if (at < match.begin) spans.push_back({{at, match.begin}, invert});
    spans.push_back({match, !invert});
    at = match.end;
  }
  if (at < piece.end) spans.push_back({{at, piece.end}, invert});
  return spans;
}

bool joins_previous(SplitBehavior behavior, bool previous_match, bool match) {
  switch (behavior) {
    case SplitBehavior::removed:
    case SplitBehavior::isolated:
      return false;
    case SplitBehavior::contiguous:
      return match == previous_match;
    case SplitBehavior::merged_with_previous:
      return match && !previous_match;
    case SplitBehavior::merged_with_next:
      return !match && previous_match;
  }
  return false;
}

void add_spans(const std::vector<Span>& spans, SplitBehavior behavior,
               std::vector<TextRange>& pieces) {
  const size_t first = pieces.size();
  bool previous_match = false;
  for (const Span& span : spans) {
    if (behavior == SplitBehavior::removed && span.match) continue;
    if (pieces.size() > first && joins_previous(behavior, previous_match, span.match))
      pieces.back().end = span.range.end;
    else
      pieces.push_back(span.range);
    previous_match = span.match;
  }
}

void drop_empty(std::vector<TextRange>& pieces) {
  std::erase_if(pieces, [](const TextRange& piece) { return piece.begin == piece.end; });
}

void split(const SplitStep& step, PiecedText& text) {
  std::vector<TextRange> pieces, matches;
  for (const TextRange& piece : text.pieces) {
    matches.clear();
    step.pattern.find_all(text.text, piece, matches);
    add_spans(spans_of(piece, matches, step.invert), step.behavior, pieces);
  }
  drop_empty(pieces);
  text.pieces = std::move(pieces);
}

void map_bytes(PiecedText& text) {
  const std::array<std::string, 256>& table = byte_characters();
  std::string mapped;
  mapped.reserve(text.text.size() + text.text.size() / 2);
  for (TextRange& piece : text.pieces) {
    const size_t begin = mapped.size();
    for (size_t i = piece.begin; i < piece.end; i++) mapped += table[uint8_t(text.text[i])];
    piece = {begin, mapped.size()};
  }
  text.text = std::move(mapped);
}

// GPT-2's split sees the added space, so the space goes in before the split.
void add_prefix_spaces(PiecedText& text) {
  std::string out;
  for (TextRange& piece : text.pieces) {
    const size_t begin = out.size();
    if (text.text[piece.begin] != ' ') out += ' ';
    out.append(text.text, piece.begin, piece.end - piece.begin);
    piece = {begin, out.size()};
  }
  text.text = std::move(out);
}

void byte_level(const ByteLevelStep& step, PiecedText& text) {
  if (step.add_prefix_space) add_prefix_spaces(text);
  if (step.regex) split({{*step.regex}, SplitBehavior::isolated, false}, text);
  map_bytes(text);
}

void metaspace(const MetaspaceStep& step, PiecedText& text) {
  std::string out;
  for (TextRange& piece : text.pieces) {
    const size_t begin = out.size();
    const std::string_view old =
        std::string_view(text.text).substr(piece.begin, piece.end - piece.begin);
    const bool wanted = step.prepend == PrependScheme::always ||
                        (step.prepend == PrependScheme::first && text.at_start && piece.begin == 0);
    if (wanted && old[0] != ' ' && !old.starts_with(step.replacement)) out += step.replacement;
    for (char c : old) {
      if (c == ' ')
        out += step.replacement;
      else
        out += c;
    }
    piece = {begin, out.size()};
  }
  text.text = std::move(out);
  if (step.split) split({{step.replacement}, SplitBehavior::merged_with_next, false}, text);
}

// Cuts one run of decimal digits.
void cut_run(std::string_view text, TextRange run, std::vector<TextRange>& pieces) {
  std::vector<size_t> ends;  // of each digit
  for (size_t at = run.begin; at < run.end;)
    ends.push_back(at += utf8_next(text.substr(at, run.end - at)).bytes);
  size_t begin = run.begin;
  for (size_t i = 0; i < ends.size(); i++) {
    if ((ends.size() - 1 - i) % 3 != 0) continue;
    pieces.push_back({begin, ends[i]});
    begin = ends[i];
  }
}

void digit_groups(const DigitGroupsStep& step, PiecedText& text) {
  std::vector<TextRange> pieces, runs;
  for (const TextRange& piece : text.pieces) {
    runs.clear();
    step.runs.find_all(text.text, piece, runs);
    size_t at = piece.begin;
    for (const TextRange& run : runs) {
      pieces.push_back({at, run.begin});
      cut_run(text.text, run, pieces);
      at = run.end;
    }
    pieces.push_back({at, piece.end});
  }
  drop_empty(pieces);
  text.pieces = std::move(pieces);
}

struct Apply {
  PiecedText& text;
  void operator()(const SplitStep& step) const { split(step, text); }
  void operator()(const ByteLevelStep& step) const { byte_level(step, text); }
  void operator()(const MetaspaceStep& step) const { metaspace(step, text); }
  void operator()(const DigitGroupsStep& step) const { digit_groups(step, text); }
};

}  // namespace

void TextPattern::find_all(std::string_view text, TextRange within,
                           std::vector<TextRange>& matches) const {
  if (const Regex* regex = std::get_if<Regex>(&what)) return regex->find_all(text, within, matches);
  const std::string& wanted = std::get<std::string>(what);
  if (wanted.empty()) return;
  const std::string_view subject = text.substr(0, within.end);
  for (size_t at = within.begin; (at = subject.find(wanted, at)) != std::string_view::npos;
       at += wanted.size())
    matches.push_back({at, at + wanted.size()});
}

void apply_step(const PreTokenizerStep& step, PiecedText& text) { std::visit(Apply{text}, step); }

Result<DigitGroupsStep> make_digit_groups(bool word_end) {
  COHORT_ASSIGN_OR_RETURN(Regex runs,
                          Regex::compile(word_end ? "(?<!\\p{Nd})\\p{Nd}++\\b" : "\\p{Nd}+"));
  return DigitGroupsStep{std::move(runs)};
}

const std::array<std::string, 256>& byte_characters() {
  static const std::array<std::string, 256> table = make_byte_characters();
  return table;
}

std::optional<std::string> bytes_of_characters(std::string_view token) {
  static const std::array<int16_t, kByteCharacterEnd> table = make_character_bytes();
  std::string bytes;
  while (!token.empty()) {
    const Utf8Char c = utf8_next(token);
    if (c.kind != Utf8Char::Kind::valid || c.code >= table.size() || table[c.code] < 0)
      return std::nullopt;
    bytes += char(table[c.code]);
    token.remove_prefix(c.bytes);
  }
  return bytes;
}

}  // namespace cohort
