// SPDX-License-Identifier: Apache-2.0
// What of packed panels is asked for ahead of its use. Panels are back to back, so it runs into the
// next one. Everything has internal linkage, because units of several instruction sets include
// this.
#pragma once
#include <cstddef>
#include <cstdint>

#include "kernels/packed.h"

namespace cohort {
namespace {

// Panels of this size are asked for by their quants alone, which the processor's own prefetching
// complements: it follows scales and minima as streams of their own. Of shorter ones it loses track
// at every panel, and all bytes are asked for in their order.
constexpr int64_t kLongPanel = 64 << 10;

template <QuantForm F>
class PanelFetch {
 public:
  explicit PanelFetch(const PanelShape& shape) {
    const bool is_long = shape.bytes >= kLongPanel;
    step_ = is_long ? shape.quant_bytes : kBytes;
    // Bytes in order begin past the scales, too: the first quants are needed with the first scales.
    constexpr int64_t kLeast = 4096, kShort = 512, kLong = 2048;
    const int64_t at = shape.quants_at + (is_long ? kLong : kShort);
    begin_ = at < kLeast && !is_long ? kLeast : at;
  }
  // Beside block b of a panel.
  __attribute__((always_inline)) inline void operator()(const std::byte* panel, int64_t b) const {
    const std::byte* ahead = panel + begin_ + b * step_;
    asm("" : "+r"(ahead));  // one register, not one for each line
#pragma GCC unroll 16
    for (int i = 0; i < kBytes; i += 64) __builtin_prefetch(ahead + i);
  }

 private:
  static constexpr int kBytes =
      int(panel_shape(F, 2048).bytes / (2048 / kQuantBlock));  // of a block
  int64_t begin_, step_;
};

}  // namespace
}  // namespace cohort
