// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl_memory.h"

#include "base/failure.h"
#include "base/log.h"
#include "comm/nccl_error.h"

namespace cohort {

Buffer NcclMemory::allocate(size_t bytes, Duration patience) {
  if (bytes == 0) return {};
  device_->use();
  // NCCL tells no reason: where memory is short the device's own allocation finds that out, too.
  void* data = nullptr;
  const ncclResult_t result = ncclMemAlloc(&data, bytes);
  if (result != ncclSuccess) {
    say_once(nccl_status(result, "ncclMemAlloc", nullptr).message());
    (void)cudaGetLastError();
    return device_->allocate(bytes);
  }
  blocks_.push_back({data, nullptr});
  ncclWindow_t window = nullptr;
  const Status status = link_.call("ncclCommWindowRegister", patience, [&](ncclComm_t comm) {
    return ncclCommWindowRegister(comm, data, bytes, &window, NCCL_WIN_COLL_SYMMETRIC);
  });
  if (status.code() == Code::kDeadlineExceeded) throw Failure(status);
  // Not an allocation's own trouble, but that of a group that has ended.
  if (const Status link = link_.status(); !link.ok()) throw Failure(link.annotate(name_));
  if (!status.ok()) say_once(status.message());
  blocks_.back().window = window;
  cuda_check(cudaMemsetAsync(data, 0, bytes, device_->compute()), "cudaMemsetAsync");
  cuda_check(cudaStreamSynchronize(device_->compute()), "cudaStreamSynchronize");
  return Buffer(data, bytes, [](void*, size_t) {});
}

void NcclMemory::say_once(const std::string& why) {
  if (!said_) log_debug(name_ + ": memory is not registered with NCCL: " + why);
  said_ = true;
}

NcclMemory::~NcclMemory() {
  for (const Block& block : blocks_) {
    if (block.window != nullptr) {
      const Status status =
          link_.call("ncclCommWindowDeregister", std::chrono::seconds(2),
                     [&](ncclComm_t comm) { return ncclCommWindowDeregister(comm, block.window); });
      if (!status.ok()) log_debug(name_ + ": " + status.message());
    }
    nccl_release(ncclMemFree(block.data), "ncclMemFree");
  }
}

}  // namespace cohort
