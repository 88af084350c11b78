// SPDX-License-Identifier: Apache-2.0
// Weights in device memory. No CUDA headers: kernels/ includes it with and without a GPU.
//
// A part of a matrix [rows, columns] is held in one of these forms; which one follows from its type
// and from the stream:
//   plain      f32, f16 or bf16 weights, converted to the type of the activations, row-major
//              [rows][columns]. Also quantised weights where activations are f32.
//   quantised  the GGUF types as integers with scales, in panels for mma fragments
//              (kernels/cuda/quant_layout.h)
// Consecutive parts of one form and type become one part, so that q | k | v and gate | up are one
// product each.
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

// Memory that prepare() needs for so many rows in int8.
size_t quantized_bytes(int64_t rows, int64_t columns);

}  // namespace cohort::cuda
