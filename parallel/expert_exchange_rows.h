// SPDX-License-Identifier: Apache-2.0
// Rows that are copied from here to there, by all threads of the rank.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/threads.h"

namespace cohort {

class RowCopies {
 public:
  void reserve(int64_t rows) { copies_.reserve(size_t(rows)); }
  void add(const float* from, float* to) { copies_.push_back({from, to}); }
  // Makes all copies of `width` floats each, and forgets them.
  void run(ThreadPool& threads, int64_t width) {
    const auto copy = [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; i++)
        std::copy_n(copies_[size_t(i)].from, width, copies_[size_t(i)].to);
    };
    const int64_t rows = int64_t(copies_.size());
    if (rows * width < kAlone)
      copy(0, rows);
    else
      threads.parallel_for(rows, copy);
    copies_.clear();
  }

 private:
  // Floats that one thread copies faster than several are woken.
  static constexpr int64_t kAlone = 32768;
  struct Copy {
    const float* from;
    float* to;
  };
  std::vector<Copy> copies_;
};

}  // namespace cohort
