// SPDX-License-Identifier: Apache-2.0
// Linked where the build has no CUDA.
#include "base/open_device.h"

namespace cohort {

Result<std::shared_ptr<Device>> open_cuda_device(int) {
  return unimplemented(
      "this build has no CUDA backend; configure with -DCOHORT_CUDA=real where the CUDA toolkit "
      "is");
}

int count_cuda_devices() { return 0; }

}  // namespace cohort
