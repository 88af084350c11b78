// SPDX-License-Identifier: Apache-2.0
// Every op of kernels/ops.h and the kernels of kernels/cuda against float64 loops on the CPU.
// Outputs begin as NaN.
#pragma once
#include <memory>
#include <random>

#include "base/device_cuda.h"
#include "base/stream.h"
#include "tools/gpu_check/report.h"

namespace cohort::gpu_check {

struct Bench {
  Report& report;
  std::shared_ptr<CudaDevice> device;
  std::mt19937& random;
};

// NaN stays.
inline double larger(double a, double b) { return b <= a || a != a ? a : b; }

void check_rows(const Bench& bench);  // norms, residuals, gates, embedding, moves of rows
void check_attention(const Bench& bench);
void check_products(const Bench& bench);
void check_experts(const Bench& bench);  // choice, grouped products and sums of experts
void check_sampler(const Bench& bench);
void check_tokens(const Bench& bench);  // token table and tree sums

}  // namespace cohort::gpu_check
