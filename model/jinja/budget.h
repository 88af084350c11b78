// SPDX-License-Identifier: Apache-2.0
// Bounds on what a hostile template can cost, and the exception by which rendering stops.
// Exceptions never leave model/chat_template.cc, which turns them into a Status.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/status.h"

namespace cohort::jinja {

struct TemplateError {
  Code code = Code::kInvalidArgument;
  std::string message;
  int line = 0;  // 0: not known where it was thrown
};

[[noreturn]] void fail(std::string message);              // a mistake in the template or its data
[[noreturn]] void fail_unsupported(std::string message);  // Jinja2 has it, Cohort does not
[[noreturn]] void fail_limit(std::string message);

// Counters of one rendering. Work on long strings counts as steps too, so that the limit on steps
// bounds the time whatever the template does.
class Budget {
 public:
  Budget(int64_t max_steps, size_t max_text) : steps_left_(max_steps), max_text_(max_text) {}

  void step(int64_t count = 1) {
    steps_left_ -= count;
    if (steps_left_ < 0) fail_limit("the template needs too many steps");
  }
  // Reading `bytes` bytes of text.
  void scan(size_t bytes) { step(static_cast<int64_t>(bytes / kScannedBytesPerStep)); }
  // Making a text of `size` bytes, or letting one grow to it by `added`.
  void make_text(size_t size, size_t added) {
    if (size > max_text_) fail_limit("a text in the template grows too long");
    made_bytes_ += added;
    if (made_bytes_ / kMadeTextsLimit > max_text_) fail_limit("the template needs too much memory");
    scan(added);
  }
  size_t max_text() const { return max_text_; }

 private:
  // memchr and memcpy run at more than 1 GB/s: 1 KiB costs what one evaluation costs.
  static constexpr size_t kScannedBytesPerStep = 1024;
  // All texts ever made, in units of the longest allowed one: nothing frees what it counted.
  static constexpr size_t kMadeTextsLimit = 16;

  int64_t steps_left_;
  size_t max_text_;
  size_t made_bytes_ = 0;
};

}  // namespace cohort::jinja
