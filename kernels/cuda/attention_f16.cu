// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attention_tensor.h"

namespace cohort::cuda {

cudaError_t attend_f16(const AttentionLaunch& launch, bool f8) {
  return f8 ? attend_tensor<__half, __nv_fp8_e4m3>(launch) : attend_tensor<__half, __half>(launch);
}

}  // namespace cohort::cuda
