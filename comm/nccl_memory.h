// SPDX-License-Identifier: Apache-2.0
// Memory that NCCL has registered with all ranks of a group, so that the GPUs reach each other's
// directly (NCCL 2.28 user guide, "Window Registration").
#pragma once
#include <nccl.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/device_cuda.h"
#include "comm/nccl_link.h"

namespace cohort {

// All memory lives as long as this object: NCCL must not see memory go that it has registered, and
// a Buffer does not know its group.
class NcclMemory {
 public:
  NcclMemory(std::shared_ptr<CudaDevice> device, NcclLink& link, std::string name)
      : device_(std::move(device)), link_(link), name_(std::move(name)) {}
  ~NcclMemory();
  NcclMemory(const NcclMemory&) = delete;

  // Zeroed. Plain device memory where NCCL has none or does not register it. Throws OutOfMemory,
  // and Failure where the peers do not come. Called by all ranks alike.
  Buffer allocate(size_t bytes, Duration patience);

 private:
  struct Block {
    void* data;
    ncclWindow_t window;  // null where memory cannot be registered
  };
  void say_once(const std::string& why);

  const std::shared_ptr<CudaDevice> device_;
  NcclLink& link_;
  const std::string name_;
  std::vector<Block> blocks_;
  bool said_ = false;
};

}  // namespace cohort
