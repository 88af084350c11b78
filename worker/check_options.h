// SPDX-License-Identifier: Apache-2.0
// What can be wrong with a rank's options before a device is touched or a weight is read.
#pragma once
#include "base/status.h"
#include "model/config.h"
#include "worker/replica_options.h"

namespace cohort {

// world_size: ranks that were started.
Status check_options(const ReplicaOptions& options, int world_size);
// Whether the device computes what the model and the layout need.
Status check_device(const ReplicaOptions& options, const ModelConfig& config);

}  // namespace cohort
