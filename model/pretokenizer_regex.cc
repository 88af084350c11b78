// SPDX-License-Identifier: Apache-2.0
#define PCRE2_CODE_UNIT_WIDTH 8
#include "model/pretokenizer_regex.h"

#include <pcre2.h>

namespace cohort {
namespace {

// Steps of one match, and KiB of heap: far above what real pre-tokenizers need on a megabyte.
constexpr uint32_t kMatchLimit = 20'000'000;
constexpr uint32_t kHeapLimitKib = 256 * 1024;
constexpr size_t kMaxPatternBytes = 64 * 1024;

// The characters of Unicode's White_Space, which is what Oniguruma's \s means. PCRE2's has U+180E
// too.
constexpr std::string_view kSpaces =
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"
    "\\x{205f}\\x{3000}";

// Oniguruma's \w; PCRE2's has no marks and no connectors but the underscore.
constexpr std::string_view kWordCharacters = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";
constexpr std::string_view kWordBoundary =
    "(?:(?<=[\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}])(?![\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}])|"
    "(?<![\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}])(?=[\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}]))";

// Trailing space of deepseek-llm. As written it is tried from every space of a run that does not
// end its line, each time to the end of the run: quadratic.
constexpr std::string_view kTrailingSpace = "\\s+$";
constexpr std::string_view kTrailingSpaceLinear = "(?<!\\s)\\s++$";

// Oniguruma to PCRE2, as far as the two differ in what tokenizers use.
class Translation {
 public:
  explicit Translation(std::string_view pattern)
      : in_(pattern == kTrailingSpace ? kTrailingSpaceLinear : pattern) {}

  Result<std::string> run() {
    while (at_ < in_.size()) {
      const char c = in_[at_];
      if (c == '\\' && at_ + 1 < in_.size())
        escape(in_[at_ + 1]);
      else if (in_class_)
        COHORT_RETURN_IF_ERROR(class_member());
      else if (c == '[')
        open_class();
      else
        copy(1);
    }
    return std::move(out_);
  }

 private:
  void copy(size_t bytes) {
    out_ += in_.substr(at_, bytes);
    at_ += bytes;
  }

  void escape(char kind) {
    const bool space = kind == 's' || kind == 'S', word = kind == 'w' || kind == 'W';
    const bool negated = kind == 'S' || kind == 'W';
    if (kind == 'b' && !in_class_) {
      out_.append(kWordBoundary);
      at_ += 2;
      return;
    }
    if ((!space && !word) || (negated && in_class_)) return copy(2);
    if (!in_class_) out_ += negated ? "[^" : "[";
    out_ += space ? kSpaces : kWordCharacters;
    if (!in_class_) out_ += ']';
    at_ += 2;
  }

  void open_class() {
    in_class_ = true;
    copy(in_.substr(at_, 2) == "[^" ? 2 : 1);
    if (in_.substr(at_, 1) != "]") return;
    out_ += '\\';  // directly after the opening bracket an ordinary character
    copy(1);
  }

  Status class_member() {
    // PCRE2 would read these two as ordinary characters.
    if (in_.substr(at_, 2) == "&&")
      return unimplemented("set intersection (&&) in a regular expression");
    const size_t posix_end = in_.substr(at_, 2) == "[:" ? in_.find(":]", at_) : std::string::npos;
    if (posix_end != std::string::npos) {
      copy(posix_end + 2 - at_);
      return {};
    }
    if (in_[at_] == '[') return unimplemented("a set within a set in a regular expression");
    if (in_[at_] == ']') in_class_ = false;
    copy(1);
    return {};
  }

  const std::string_view in_;
  size_t at_ = 0;
  bool in_class_ = false;
  std::string out_;
};

std::string message_of(int error) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(error, text, sizeof(text));
  return reinterpret_cast<const char*>(text);
}

struct FreeCompile {
  void operator()(pcre2_compile_context* c) const { pcre2_compile_context_free(c); }
};
struct FreeData {
  void operator()(pcre2_match_data* d) const { pcre2_match_data_free(d); }
};

}  // namespace

struct Regex::Code {
  pcre2_code* code = nullptr;
  pcre2_match_context* limits = nullptr;
  ~Code() {
    pcre2_match_context_free(limits);
    pcre2_code_free(code);
  }

  int match(std::string_view subject, size_t start, pcre2_match_data* data) const {
    const auto* text = reinterpret_cast<PCRE2_SPTR>(subject.data());
    // The caller has checked the encoding; checking it for every match would be quadratic.
    constexpr uint32_t options = PCRE2_NO_UTF_CHECK;
    const int found = pcre2_match(code, text, subject.size(), start, options, data, limits);
    if (found != PCRE2_ERROR_JIT_STACKLIMIT) return found;
    // The interpreter keeps its backtracking points on the heap, within limits.
    return pcre2_match(code, text, subject.size(), start, options | PCRE2_NO_JIT, data, limits);
  }
};

Result<Regex> Regex::compile(const std::string& pattern) {
  if (pattern.size() > kMaxPatternBytes)
    return invalid_argument("a regular expression is too long");
  COHORT_ASSIGN_OR_RETURN(const std::string translated, Translation(pattern).run());
  const std::unique_ptr<pcre2_compile_context, FreeCompile> context(
      pcre2_compile_context_create(nullptr));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  size_t at = 0;
  auto code = std::make_shared<Code>();
  // Oniguruma's ^ and $ are those of lines.
  code->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                             PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
                             &error, &at, context.get());
  if (!code->code)
    return invalid_argument("the regular expression " + pattern +
                            " cannot be compiled: " + message_of(error));
  // Without JIT (a system that forbids executable memory) the interpreter does the same, slower.
  (void)pcre2_jit_compile(code->code, PCRE2_JIT_COMPLETE);
  code->limits = pcre2_match_context_create(nullptr);
  pcre2_set_match_limit(code->limits, kMatchLimit);
  pcre2_set_heap_limit(code->limits, kHeapLimitKib);
  return Regex(std::move(code));
}

void Regex::find_all(std::string_view text, TextRange within,
                     std::vector<TextRange>& matches) const {
  const std::string_view subject = text.substr(within.begin, within.end - within.begin);
  const std::unique_ptr<pcre2_match_data, FreeData> data(pcre2_match_data_create(1, nullptr));
  size_t at = 0, last_end = std::string_view::npos;
  while (at < subject.size()) {
    if (code_->match(subject, at, data.get()) < 0) return;
    const size_t* found = pcre2_get_ovector_pointer(data.get());
    const size_t begin = found[0], end = found[1];
    if (begin > end || end < at) return;  // \K in a lookahead can do that
    if (begin < end || begin != last_end)
      matches.push_back({within.begin + begin, within.begin + end});
    last_end = at = end;
    if (begin < end) continue;
    do {
      at++;
    } while (at < subject.size() && (uint8_t(subject[at]) & 0xc0) == 0x80);
  }
}

}  // namespace cohort
