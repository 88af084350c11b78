// SPDX-License-Identifier: Apache-2.0
// Weights in device memory. No CUDA headers: kernels/ includes it with and without a GPU.
//
// A part of a matrix [rows, columns] is held in one of these forms; which one follows from its type
// and from the stream:
//   plain      f32, f16 or bf16 weights, converted to the type of the activations, row-major
//              [rows][columns]
//   quantised  the GGUF types as integers with scales, in panels for mma fragments
//              (kernels/cuda/quant_layout.h), whatever the activations: int8 activations multiply
//              the integers, f16 and bf16 ones multiply them and scale the sums, and where
//              everything is f32 a weight becomes f32 as it is used
// Consecutive parts of one form and type become one part, so that q | k | v and gate | up are one
// product each; quantised ones only where the first ends with a whole panel.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/matrix.h"

namespace cohort::cuda {

struct PartShape {
  DType dtype;  // in the checkpoint
  int64_t rows, columns;
};

// Reads the part on the host a few megabytes at a time, converts or packs it with the stream's host
// threads, and uploads it. Appends it to `parts`, or to the last of them. Throws OutOfMemory.
Status add_part(Stream& stream, std::vector<MatrixPart>& parts, const PartShape& shape,
                Matrix::ReadRows read);

// Size of a part of that type in device memory, `dtype` as in MatrixPart.
int64_t part_bytes(DType dtype, int64_t rows, int64_t columns);

// Memory that prepare() needs for so many rows in int8.
size_t quantized_bytes(int64_t rows, int64_t columns);

}  // namespace cohort::cuda
