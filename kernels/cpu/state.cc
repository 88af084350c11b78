// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/state.h"

#include <algorithm>

#include "base/log.h"
#include "kernels/cpu/amx_check.h"

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

bool State::bf16_tiles(Isa isa) {
  if (isa != Isa::amx) return false;
  if (!bf16_tiles_) {
    bf16_tiles_ = tiles_as_specified();
    if (!*bf16_tiles_)
      log_warning(
          "the tiles of this processor add bf16 products in an order of their own: AVX-512 "
          "is used for bf16 weights and caches, which gives the specified results more slowly");
  }
  return *bf16_tiles_;
}

void for_rows(Stream& stream, int64_t rows, int64_t elements,
              FunctionRef<void(int64_t, int64_t)> work) {
  // A region costs somewhat less than a microsecond, and milliseconds where another process has the
  // core that one of its threads waits for: what one thread does in twelve microseconds is not
  // worth it. So a layer of a small model takes five regions for up to 16 rows.
  constexpr int64_t kWorthSharing = 50 << 10;
  if (elements < kWorthSharing) {
    if (rows > 0) work(0, rows);
    return;
  }
  stream.threads().parallel_for(rows, work);
}

void for_columns(Stream& stream, int64_t rows, int64_t columns, int64_t elements,
                 FunctionRef<void(int64_t, int64_t, int64_t)> work) {
  constexpr int64_t kPiece = 32;
  const int64_t pieces = (columns + kPiece - 1) / kPiece;  // of a row
  for_rows(stream, rows * pieces, elements, [&](int64_t at, int64_t end) {
    while (at < end) {
      const int64_t row = at / pieces, first = at % pieces;
      const int64_t last = std::min(first + end - at, pieces);
      work(row, first * kPiece, std::min(last * kPiece, columns));
      at += last - first;
    }
  });
}

}  // namespace cohort::cpu
