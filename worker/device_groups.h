// SPDX-License-Identifier: Apache-2.0
// The groups in which GPUs exchange tensors. Built by worker/cuda/device_groups.cc, or
// worker/no_cuda.cc where there is no CUDA.
#pragma once
#include <memory>

#include "base/clock.h"
#include "base/device.h"
#include "base/status.h"
#include "comm/communicator.h"

namespace cohort {

struct DeviceGroups {
  std::unique_ptr<Communicator> tp;      // collectives of a stage
  std::unique_ptr<Communicator> pp;      // activations from stage to stage
  std::unique_ptr<Communicator> tokens;  // sampled tokens from the last stage to the first
};

struct DeviceGroupsOptions {
  bool ordered = false;           // sums in the order of the tree
  int64_t max_gather_floats = 0;  // most that an ordered sum gathers
  Duration timeout{};
};

// By all ranks alike. tp and pp: the same groups between the hosts.
Result<DeviceGroups> make_device_groups(const std::shared_ptr<Device>& device, Communicator& tp,
                                        Communicator& pp, const DeviceGroupsOptions& options);

}  // namespace cohort
