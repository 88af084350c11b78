// SPDX-License-Identifier: Apache-2.0
// Regular expressions of tokenizers, written for Oniguruma (what Hugging Face's `tokenizers` uses)
// and run by PCRE2. Immutable; any thread may search at the same time.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/tokenizer.h"

namespace cohort {

class Regex {
 public:
  static Result<Regex> compile(const std::string& pattern);

  // Appends every match within text[within.begin, within.end), which is the whole subject: anchors
  // and lookaround see nothing beyond. Text must be valid UTF-8. Matches may be empty. Where
  // matching exceeds its limits (a hostile pattern), the rest of the subject counts as unmatched.
  void find_all(std::string_view text, TextRange within, std::vector<TextRange>& matches) const;

 private:
  struct Code;
  explicit Regex(std::shared_ptr<const Code> code) : code_(std::move(code)) {}
  std::shared_ptr<const Code> code_;
};

}  // namespace cohort
