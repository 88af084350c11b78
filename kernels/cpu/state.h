// SPDX-License-Identifier: Apache-2.0
// What the CPU kernels keep as long as the stream: scratch memory of each thread, which only grows,
// so that a step that resembles an earlier one allocates nothing.
#pragma once
#include <cstddef>
#include <memory>
#include <vector>

#include "base/buffer.h"
#include "base/function_ref.h"
#include "base/stream.h"

namespace cohort::cpu {

class State {
 public:
  // Created by the first op that needs it.
  static State& of(Stream& stream);
  explicit State(int threads) : scratch_(size_t(threads)) {}

  // At least `bytes` for every thread; called between parallel regions. Contents are not kept.
  void reserve(size_t bytes);
  std::byte* scratch(int thread) const { return scratch_[size_t(thread)].data(); }

 private:
  std::vector<Buffer> scratch_;
};

// Splits rows over the threads, or does all on the caller where waking them would cost more:
// `elements` is the work of all rows in elements touched.
void for_rows(Stream& stream, int64_t rows, int64_t elements,
              FunctionRef<void(int64_t begin, int64_t end)> work);

}  // namespace cohort::cpu
