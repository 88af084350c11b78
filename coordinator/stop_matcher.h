// SPDX-License-Identifier: Apache-2.0
// Cuts a stream of text at the first stop string. The first one is the one that is complete
// earliest (of several that end at the same byte, the longest), so the result does not depend on
// how the text arrives. Only a suffix that may still become a stop string is held back.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace cohort {

class StopMatcher {
 public:
  // No stop string may be empty. include_stop: the text keeps the stop string that ended it.
  StopMatcher(std::vector<std::string> stops, bool include_stop);

  // What can be shown for certain. After stopped() there is nothing more.
  std::string push(std::string_view text);
  // Text in which stop strings do not count yet: shown at once, with what was held back.
  std::string pass(std::string_view text);
  // The text has ended: what was held back.
  std::string flush();
  bool stopped() const { return stopped_; }

 private:
  size_t held_length() const;

  const std::vector<std::string> stops_;
  const bool include_stop_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace cohort
