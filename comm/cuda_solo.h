// SPDX-License-Identifier: Apache-2.0
// A group of one GPU.
#pragma once
#include <memory>
#include <string>

#include "base/device_cuda.h"
#include "comm/communicator.h"

namespace cohort {

// Its verbs copy or add up this rank's own pieces, on the compute stream.
std::unique_ptr<Communicator> make_cuda_solo_communicator(std::shared_ptr<CudaDevice> device,
                                                          const std::string& label, bool ordered);

}  // namespace cohort
