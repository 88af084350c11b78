// SPDX-License-Identifier: Apache-2.0
// Linked where the build has no CUDA. Nobody comes here: such a build cannot open a GPU.
#include "base/failure.h"
#include "worker/device_groups.h"
#include "worker/step_runner.h"

namespace cohort {

Result<DeviceGroups> make_device_groups(const std::shared_ptr<Device>&, Communicator&,
                                        Communicator&, const DeviceGroupsOptions&) {
  return unimplemented("this build has no CUDA backend");
}

std::unique_ptr<StepRunner> make_cuda_step_runner(const StageParts&) {
  throw Failure(unimplemented("this build has no CUDA backend"));
}

}  // namespace cohort
