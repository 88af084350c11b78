// SPDX-License-Identifier: Apache-2.0
// What the CPU kernels keep as long as the stream: scratch memory of each thread, which only grows,
// so that a step that resembles an earlier one allocates nothing.
#pragma once
#include <cstddef>
#include <memory>
#include <optional>
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

  // Whether products of bf16 may use tiles: found out by the first that ask.
  bool bf16_tiles(Isa isa);

 private:
  std::vector<Buffer> scratch_;
  std::optional<bool> bf16_tiles_;
};

// Splits rows over the threads, or does all on the caller where waking them would cost more:
// `elements` is the work of all rows, in elements that take a quarter of a nanosecond each: that
// is one which is read, worked on a little and written.
void for_rows(Stream& stream, int64_t rows, int64_t elements,
              FunctionRef<void(int64_t begin, int64_t end)> work);

// The same by pieces of rows, so that a lone one is shared, too: every thread gets some rows'
// columns [begin, end), a multiple of 32 or up to the row's end.
void for_columns(Stream& stream, int64_t rows, int64_t columns, int64_t elements,
                 FunctionRef<void(int64_t row, int64_t begin, int64_t end)> work);

}  // namespace cohort::cpu
