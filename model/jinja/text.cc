// SPDX-License-Identifier: Apache-2.0
#include "model/jinja/text.h"

#include <algorithm>

#include "model/jinja/unicode.h"

namespace cohort::jinja {

TextPtr make_text(std::string bytes, bool literal) {
  auto text = std::make_shared<Text>();
  if (literal && !bytes.empty()) text->literal = {{0, bytes.size()}};
  text->bytes = std::move(bytes);
  return text;
}

void TextBuilder::mark(size_t begin, size_t end) {
  if (begin == end) return;
  if (!out_.literal.empty() && out_.literal.back().end == begin) {
    out_.literal.back().end = end;
  } else {
    out_.literal.push_back({begin, end});
  }
}

void TextBuilder::append(std::string_view bytes, bool literal) {
  const size_t begin = out_.bytes.size();
  budget_.make_text(begin + bytes.size(), bytes.size());
  out_.bytes.append(bytes);
  if (literal) mark(begin, out_.bytes.size());
}

void TextBuilder::append(const Text& text, size_t begin, size_t end) {
  const size_t base = out_.bytes.size();
  append(std::string_view(text.bytes).substr(begin, end - begin));
  auto range = std::partition_point(text.literal.begin(), text.literal.end(),
                                    [&](const TextRange& r) { return r.end <= begin; });
  for (; range != text.literal.end() && range->begin < end; ++range) {
    mark(base + std::max(range->begin, begin) - begin, base + std::min(range->end, end) - begin);
  }
}

TextPtr TextBuilder::take(bool markup) {
  out_.markup = markup;
  return std::make_shared<const Text>(std::move(out_));
}

TextPtr cut(const TextPtr& text, size_t begin, size_t end, Budget& budget) {
  if (begin == 0 && end == text->bytes.size()) return text;
  TextBuilder out(budget);
  out.append(*text, begin, end);
  return out.take(text->markup);
}

TextPtr concatenate(const Text& a, const Text& b, Budget& budget) {
  TextBuilder out(budget);
  out.append(a);
  out.append(b);
  return out.take(a.markup);
}

TextPtr repeat(const Text& text, int64_t times, Budget& budget) {
  TextBuilder out(budget);
  if (text.bytes.empty()) return out.take(text.markup);
  if (times > static_cast<int64_t>(budget.max_text())) {
    fail_limit("a text in the template grows too long");
  }
  for (int64_t i = 0; i < times; ++i) {
    budget.step();
    out.append(text);
  }
  return out.take(text.markup);
}

namespace {

bool strips(const std::optional<std::string>& characters, std::string_view text, size_t at,
            size_t length) {
  if (!characters) return is_space(decode_utf8(text, at).value);
  return characters->find(text.substr(at, length)) != std::string::npos;
}

size_t previous_character(std::string_view text, size_t at) {
  do --at;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80);
  return at;
}

}  // namespace

TextPtr strip(const TextPtr& text, Side side, const std::optional<std::string>& characters,
              Budget& budget) {
  const std::string_view bytes = text->bytes;
  budget.scan(bytes.size());
  size_t begin = 0, end = bytes.size();
  while (side != Side::kRight && begin < end) {
    const size_t length = decode_utf8(bytes, begin).length;
    if (!strips(characters, bytes, begin, length)) break;
    begin += length;
  }
  while (side != Side::kLeft && begin < end) {
    const size_t start = previous_character(bytes, end);
    if (start < begin || !strips(characters, bytes, start, end - start)) break;
    end = start;
  }
  return cut(text, begin, end, budget);
}

TextPtr replace(const Text& text, const Text& from, const Text& to, int64_t count, Budget& budget) {
  TextBuilder out(budget);
  const std::string_view bytes = text.bytes;
  size_t at = 0;
  if (from.bytes.empty()) {  // between all characters, and at both ends
    while (count != 0) {
      out.append(to);
      if (count > 0) --count;
      if (at >= bytes.size()) return out.take(text.markup);
      const size_t length = decode_utf8(bytes, at).length;
      out.append(text, at, at + length);
      at += length;
      budget.step();
    }
  }
  while (count != 0 && !from.bytes.empty()) {
    const size_t found = bytes.find(from.bytes, at);
    if (found == std::string_view::npos) break;
    budget.step();
    out.append(text, at, found);
    out.append(to);
    at = found + from.bytes.size();
    if (count > 0) --count;
  }
  out.append(text, at, bytes.size());
  return out.take(text.markup);
}

std::vector<TextPtr> split(const TextPtr& text, const std::string& separator, int64_t count,
                           bool from_right, Budget& budget) {
  if (separator.empty()) fail("empty separator");
  const std::string_view bytes = text->bytes;
  budget.scan(bytes.size());
  std::vector<TextPtr> parts;
  size_t begin = 0, end = bytes.size();
  for (; count != 0; count -= count > 0) {
    budget.step();
    const std::string_view rest = bytes.substr(begin, end - begin);
    const size_t found = from_right ? rest.rfind(separator) : rest.find(separator);
    if (found == std::string_view::npos) break;
    const size_t at = begin + found;
    if (from_right) {
      parts.push_back(cut(text, at + separator.size(), end, budget));
      end = at;
    } else {
      parts.push_back(cut(text, begin, at, budget));
      begin = at + separator.size();
    }
  }
  parts.push_back(cut(text, begin, end, budget));
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<TextPtr> split_white_space(const TextPtr& text, int64_t count, bool from_right,
                                       Budget& budget) {
  const std::string_view bytes = text->bytes;
  std::vector<TextRange> words;
  bool inside = false;
  budget.scan(bytes.size() * 16);
  for (size_t at = 0; at < bytes.size();) {
    const Decoded character = decode_utf8(bytes, at);
    const bool space = is_space(character.value);
    if (!space && !inside) words.push_back({at, at});
    if (!space) words.back().end = at + character.length;
    inside = !space;
    at += character.length;
  }
  budget.step(static_cast<int64_t>(words.size()));
  if (count >= 0 && words.size() > static_cast<size_t>(count) + 1) {
    const size_t kept = static_cast<size_t>(count);
    if (from_right) {  // the text before the split keeps its leading white space
      const size_t last = words.size() - kept - 1;
      words[last].begin = 0;
      words.erase(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(last));
    } else {
      words[kept].end = bytes.size();
      words.resize(kept + 1);
    }
  }
  std::vector<TextPtr> parts;
  for (const TextRange& word : words) parts.push_back(cut(text, word.begin, word.end, budget));
  return parts;
}

std::vector<TextPtr> split_lines(const TextPtr& text, bool keep_ends, Budget& budget) {
  const std::string_view bytes = text->bytes;
  std::vector<TextPtr> lines;
  size_t begin = 0;
  budget.scan(bytes.size() * 16);
  for (size_t at = 0; at < bytes.size();) {
    const auto [value, length] = decode_utf8(bytes, at);
    const bool ends = (value >= 0x0A && value <= 0x0D) || (value >= 0x1C && value <= 0x1E) ||
                      value == 0x85 || value == 0x2028 || value == 0x2029;
    size_t next = at + length;
    if (ends) {
      if (value == '\r' && next < bytes.size() && bytes[next] == '\n') ++next;
      budget.step();
      lines.push_back(cut(text, begin, keep_ends ? next : at, budget));
      begin = next;
    }
    at = next;
  }
  if (begin < bytes.size()) lines.push_back(cut(text, begin, bytes.size(), budget));
  return lines;
}

TextPtr join(const std::vector<TextPtr>& parts, const Text& separator, Budget& budget) {
  TextBuilder out(budget);
  for (size_t i = 0; i < parts.size(); ++i) {
    budget.step();
    if (i > 0) out.append(separator);
    out.append(*parts[i]);
  }
  return out.take(separator.markup);
}

namespace {

// Appends the character at `at` as `mapped`, literal if the original is.
void append_mapped(const Text& text, size_t at, const std::string& mapped, TextBuilder& out) {
  auto range = std::partition_point(text.literal.begin(), text.literal.end(),
                                    [&](const TextRange& r) { return r.end <= at; });
  out.append(mapped, range != text.literal.end() && range->begin <= at);
}

using CaseMap = void (*)(char32_t, std::string&);

// `map_at` chooses the mapping for each character, told it and the one before it.
template <class MapAt>
TextPtr map_each(const Text& text, Budget& budget, const MapAt& map_at) {
  TextBuilder out(budget);
  budget.scan(text.bytes.size() * 16);
  char32_t before = 0;
  std::string mapped;
  for (size_t at = 0; at < text.bytes.size();) {
    const Decoded character = decode_utf8(text.bytes, at);
    mapped.clear();
    const CaseMap map = map_at(character.value, before);
    const bool valid = character.value != 0xFFFD;
    if (map && valid) {
      map(character.value, mapped);
    } else {
      mapped.assign(text.bytes, at, character.length);
    }
    append_mapped(text, at, mapped, out);
    before = character.value;
    at += character.length;
  }
  return out.take(text.markup);
}

}  // namespace

TextPtr map_characters(const Text& text, CaseMap map, Budget& budget) {
  return map_each(text, budget, [&](char32_t, char32_t) { return map; });
}

TextPtr lower(const Text& text, Budget& budget) {
  return map_characters(text, append_lower, budget);
}
TextPtr upper(const Text& text, Budget& budget) {
  return map_characters(text, append_upper, budget);
}

TextPtr capitalize(const Text& text, Budget& budget) {
  bool first = true;
  return map_each(text, budget, [&](char32_t, char32_t) {
    const CaseMap map = first ? append_upper : append_lower;
    first = false;
    return map;
  });
}

TextPtr title(const Text& text, Words words, Budget& budget) {
  bool first = true;
  return map_each(text, budget, [&](char32_t value, char32_t before) {
    const bool starts = words == Words::kLetters ? !is_alphabetic(before)
                                                 : first || is_space(before) ||
                                                       std::u32string_view(U"-({[<").find(before) !=
                                                           std::u32string::npos;
    first = false;
    (void)value;
    return starts ? append_upper : append_lower;
  });
}

namespace {

void append_escaped(char32_t value, std::string& out) {
  switch (value) {
    case '&':
      out += "&amp;";
      break;
    case '<':
      out += "&lt;";
      break;
    case '>':
      out += "&gt;";
      break;
    case '"':
      out += "&#34;";
      break;
    case '\'':
      out += "&#39;";
      break;
    default:
      append_utf8(value, out);
  }
}

}  // namespace

TextPtr escape_html(const TextPtr& text, Budget& budget) {
  if (text->markup) return text;
  auto escaped = std::make_shared<Text>(*map_characters(*text, append_escaped, budget));
  escaped->markup = true;
  return escaped;
}

TextPtr reverse(const Text& text, Budget& budget) {
  TextBuilder out(budget);
  budget.scan(text.bytes.size() * 16);
  for (size_t end = text.bytes.size(); end > 0;) {
    const size_t start = previous_character(text.bytes, end);
    out.append(text, start, end);
    end = start;
  }
  return out.take(text.markup);
}

}  // namespace cohort::jinja
