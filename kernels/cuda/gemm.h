// SPDX-License-Identifier: Apache-2.0
// Matrix products by cuBLASLt (cuBLAS 13 manual, "Using the cuBLASLt API"), with the choice of
// algorithm remembered per (bucket of rows, n, k, types).
#pragma once
#include <cublasLt.h>

#include <cstdint>
#include <map>
#include <memory>

#include "base/buffer.h"
#include "base/device_cuda.h"
#include "base/stream.h"
#include "base/tensor.h"

namespace cohort::cuda {

// y [batch][rows, n] (row stride y_stride) = x [batch][rows, k] * w [batch][n, k]^T, all row-major.
struct Gemm {
  const void* x;
  const void* w;
  void* y;
  DType in, out;  // of x and w; of y: f32 or `in`
  int64_t rows, n, k;
  int64_t x_stride, w_stride, y_stride;  // between rows, in elements
  int32_t batch = 1;
  int64_t x_batch = 0, w_batch = 0, y_batch = 0;  // between members of the batch, in elements
};

class GemmTable {
 public:
  // fixed_order: an output element is summed in the same order for every number of rows, so one
  // algorithm without split-K serves all rows of an (n, k).
  GemmTable(CudaDevice& device, bool fixed_order);
  ~GemmTable();
  // Enqueues on the compute stream. A shape seen for the first time asks cuBLASLt for an algorithm,
  // which may not happen during a capture: warm up first.
  void run(const Gemm& gemm);
  size_t remembered() const;  // algorithms

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cohort::cuda
