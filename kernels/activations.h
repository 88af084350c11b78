// SPDX-License-Identifier: Apache-2.0
// The input rows of matrix products, prepared once for all products that share them: f32 as they
// are, int8 with a scale per row and 32 columns for quantised weights (docs/arithmetic.md section
// 1), and bf16 for weights of that type (section 9). Memory is taken at construction; one thread
// uses it at a time (kernels share the work among the stream's threads).
#pragma once
#include <cstdint>

#include "base/buffer.h"
#include "base/stream.h"
#include "base/tensor.h"

namespace cohort {

enum class ActivationMode {
  int8,    // quantised weights multiply int8 activations: the default on the CPU
  f32,     // everything in f32: slow, for comparison with references
  bf16,    // CPU: as int8, but bf16 weights multiply bf16 activations as tile units do
  native,  // GPU: quantised weights become the type of the activations: the default there
};
// Whether quantised weights multiply int8.
constexpr bool wants_int8(ActivationMode mode) {
  return mode == ActivationMode::int8 || mode == ActivationMode::bf16;
}

class Activations {
 public:
  // Memory of the stream's device. bf16: on a CPU.
  Activations(Stream& stream, int64_t max_rows, int64_t max_columns, ActivationMode mode);

  ActivationMode mode() const { return mode_; }
  const Tensor& x() const { return x_; }  // [rows, columns] A, borrowed from the caller of prepare
  void set_x(Tensor x) { x_ = x; }
  Buffer& storage() {
    return storage_;
  }  // laid out by the kernels (kernels/cpu/quantize.h, bf16_rows.h, kernels/cuda/quantize.h)
  const Buffer& storage() const { return storage_; }
  int64_t max_rows() const { return max_rows_; }
  int64_t max_columns() const { return max_columns_; }

 private:
  int64_t max_rows_, max_columns_;
  ActivationMode mode_;
  Tensor x_;
  Buffer storage_;
};

}  // namespace cohort
