// SPDX-License-Identifier: Apache-2.0
// What NCCL's results mean.
#pragma once
#include <nccl.h>

#include "base/status.h"

namespace cohort {

// OK for success and for work in progress. `comm`: for NCCL's own account of it, may be null.
Status nccl_status(ncclResult_t result, const char* call, ncclComm_t comm);
// For what is given back, where an error can only be logged.
void nccl_release(ncclResult_t result, const char* call);

}  // namespace cohort
