// SPDX-License-Identifier: Apache-2.0
// From a checkpoint's rows to the forms of kernels/cuda/weights.h, on the host.
#pragma once
#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace cohort::cuda {

// Packs `rows` (at most 32) stored rows into a panel (quant_view.h); all of it is written.
void pack_quant_panel(DType type, int64_t columns, int rows, const std::byte* stored,
                      std::byte* panel);

// `count` elements from one of f32, f16 and bf16 to another; f16 holds finite values within
// +-65504.
void convert_plain(DType from, const std::byte* in, DType to, std::byte* out, int64_t count);

}  // namespace cohort::cuda
