// SPDX-License-Identifier: Apache-2.0
#include "coordinator/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace cohort {

StopMatcher::StopMatcher(std::vector<std::string> stops, bool include_stop)
    : stops_(std::move(stops)), include_stop_(include_stop) {}

std::string StopMatcher::push(std::string_view text) {
  if (stopped_) return {};
  held_ += text;
  size_t begin = 0, end = std::string::npos;
  for (const std::string& stop : stops_) {
    const size_t at = held_.find(stop);
    if (at == std::string::npos) continue;
    const size_t stop_end = at + stop.size();
    if (stop_end < end || (stop_end == end && at < begin)) {
      begin = at;
      end = stop_end;
    }
  }
  if (end != std::string::npos) {
    stopped_ = true;
    held_.resize(include_stop_ ? end : begin);
    return std::exchange(held_, {});
  }
  const size_t shown = held_.size() - held_length();
  std::string out = held_.substr(0, shown);
  held_.erase(0, shown);
  return out;
}

std::string StopMatcher::pass(std::string_view text) {
  std::string out = std::exchange(held_, {});
  out += text;
  return out;
}

std::string StopMatcher::flush() { return std::exchange(held_, {}); }

// Bytes at the end that are a proper prefix of some stop string.
size_t StopMatcher::held_length() const {
  size_t longest = 0;
  for (const std::string& stop : stops_) {
    for (size_t k = std::min(stop.size() - 1, held_.size()); k > longest; --k) {
      if (std::string_view(held_).substr(held_.size() - k) == std::string_view(stop).substr(0, k)) {
        longest = k;
      }
    }
  }
  return longest;
}

}  // namespace cohort
