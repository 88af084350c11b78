// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/state.h"

#include <algorithm>
#include <memory>

namespace cohort::cuda {

KernelState::KernelState(Stream& stream)
    : device_(cuda::device(stream)), gemm_(device_, stream.fixed_order()) {}

std::byte* KernelState::scratch(size_t bytes) {
  // allocate() waits for the compute stream, so nothing still uses what is replaced.
  if (scratch_.size() < bytes)
    scratch_ = device_.allocate(std::max(bytes, scratch_.size() + scratch_.size() / 2));
  return scratch_.data();
}

KernelState& state(Stream& stream) {
  std::shared_ptr<void>& kept = stream.kernel_state();
  if (!kept) kept = std::make_shared<KernelState>(stream);
  return *static_cast<KernelState*>(kept.get());
}

}  // namespace cohort::cuda
