// SPDX-License-Identifier: Apache-2.0
// Rows of activations in a quarter of their bytes, for slow links between stages: int8 with one f32
// scale per 32 columns, as activations of quantised weights have (docs/arithmetic.md section 1).
// What comes out is not what went in, so that the number of stages shows in the results.
#pragma once
#include <cstddef>
#include <cstdint>

#include "base/tensor.h"

namespace cohort {

// Of x f32 [rows, columns]: integers [rows][columns], padded to 4 bytes, then scales
// [rows][ceil(columns / 32)].
int64_t compressed_bytes(int64_t rows, int64_t columns);
// A block with NaN or infinity becomes NaN.
void compress(std::byte* out, Tensor x);
void expand(Tensor x, const std::byte* in);

}  // namespace cohort
