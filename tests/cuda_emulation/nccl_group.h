// SPDX-License-Identifier: Apache-2.0
// What setup and calls of the emulated NCCL know of groups.
#pragma once
#include <vector>

#include "tests/cuda_emulation/nccl_comm.h"

namespace emu::nccl {
bool in_group();                         // of the calling thread
void finish_in_group(const CommPtr& c);  // ncclGroupEnd waits for its setup
// Until every blocking communicator of them is set up. InProgress if one of them is non-blocking.
ncclResult_t wait_for_setup(const std::vector<CommPtr>& comms);
}  // namespace emu::nccl
