// SPDX-License-Identifier: Apache-2.0
// What the CUDA kernels of one stream keep: library handles and scratch memory.
#pragma once
#include <cstddef>

#include "base/buffer.h"
#include "base/device_cuda.h"
#include "base/stream.h"
#include "kernels/cuda/gemm.h"

namespace cohort::cuda {

class KernelState {
 public:
  explicit KernelState(Stream& stream);
  CudaDevice& device() const { return device_; }
  GemmTable& gemm() { return gemm_; }
  // Memory for one op, free again for the next one on the compute stream. Grows where it must,
  // which may not happen during a capture: warm up first.
  std::byte* scratch(size_t bytes);

 private:
  CudaDevice& device_;
  GemmTable gemm_;
  Buffer scratch_;
};

// Of this stream; made when first asked for.
KernelState& state(Stream& stream);
inline CudaDevice& device(Stream& stream) { return static_cast<CudaDevice&>(stream.device()); }
inline cudaStream_t compute(Stream& stream) { return device(stream).compute(); }

}  // namespace cohort::cuda
