// SPDX-License-Identifier: Apache-2.0
#include "tools/gpu_check/kernel_checks.h"
#include "tools/gpu_check/parts.h"

namespace cohort::gpu_check {

void check_kernels(Report& report) {
  std::mt19937 random(1);
  const Bench bench{report, open_gpu(), random};
  check_rows(bench);
  check_tokens(bench);
  check_sampler(bench);
  check_attention(bench);
  check_products(bench);
  check_experts(bench);
}

}  // namespace cohort::gpu_check
