// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/state.h"

namespace cohort::cpu {

State& State::of(Stream& stream) {
  if (!stream.kernel_state())
    stream.kernel_state() = std::make_shared<State>(stream.threads().size());
  return *static_cast<State*>(stream.kernel_state().get());
}

void State::reserve(size_t bytes) {
  for (Buffer& b : scratch_)
    if (b.size() < bytes) b = Buffer(bytes);
}

void for_rows(Stream& stream, int64_t rows, int64_t elements,
              FunctionRef<void(int64_t, int64_t)> work) {
  // A region costs about a microsecond, in which one thread touches some thousand elements.
  constexpr int64_t kWorthSharing = 8192;
  if (elements < kWorthSharing) {
    if (rows > 0) work(0, rows);
    return;
  }
  stream.threads().parallel_for(rows, work);
}

}  // namespace cohort::cpu
