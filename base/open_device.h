// SPDX-License-Identifier: Apache-2.0
// The GPU of a rank, for code that is built with and without CUDA.
#pragma once
#include <memory>

#include "base/device.h"
#include "base/status.h"

namespace cohort {

// GPU number `ordinal` of this host. UNIMPLEMENTED in builds without CUDA; FAILED_PRECONDITION, in
// one line, where there is no driver or no such GPU.
Result<std::shared_ptr<Device>> open_cuda_device(int ordinal);
// How many GPUs this process sees; 0 without a driver.
int count_cuda_devices();

}  // namespace cohort
