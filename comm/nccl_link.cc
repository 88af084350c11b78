// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl_link.h"

#include <thread>
#include <utility>

#include "comm/nccl_error.h"

namespace cohort {
namespace {

// NCCL takes work within some ten microseconds; what takes longer is a connection being made.
constexpr Duration kSpin = std::chrono::microseconds(200);
constexpr Duration kNap = std::chrono::microseconds(200);
// How long a communicator that is no longer needed waits for its peers.
constexpr Duration kFarewell = std::chrono::seconds(2);

}  // namespace

ncclResult_t nccl_group(const std::function<ncclResult_t()>& calls) {
  const ncclResult_t started = ncclGroupStart();
  if (started != ncclSuccess) return started;
  const ncclResult_t inside = calls();
  const ncclResult_t ended = ncclGroupEnd();
  return inside != ncclSuccess && inside != ncclInProgress ? inside : ended;
}

Status NcclLink::start(const ncclUniqueId& id, int rank, int size, Duration patience) {
  {
    const std::lock_guard lock(mutex_);
    COHORT_CHECK(comm_ == nullptr);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    config.commName = name_.c_str();
    const ncclResult_t result = ncclCommInitRankConfig(&comm_, size, id, rank, &config);
    taken_ = result != ncclInProgress;
    COHORT_RETURN_IF_ERROR(nccl_status(result, "ncclCommInitRankConfig", comm_));
  }
  return wait_until_taken("ncclCommInitRankConfig", patience);
}

Status NcclLink::call(const char* call, Duration patience,
                      const std::function<ncclResult_t(ncclComm_t)>& make) {
  {
    const std::lock_guard lock(mutex_);
    if (!aborted_.ok()) return aborted_;
    if (!taken_) return failed_precondition(concat(call, ": an earlier call has not ended"));
    const ncclResult_t result = make(comm_);
    taken_ = result != ncclInProgress;
    if (result == ncclSuccess) return {};
    COHORT_RETURN_IF_ERROR(nccl_status(result, call, comm_));
  }
  return wait_until_taken(call, patience);
}

Status NcclLink::wait_until_taken(const char* call, Duration patience) {
  const TimePoint start = std::chrono::steady_clock::now();
  while (true) {
    const Duration waited = std::chrono::steady_clock::now() - start;
    {
      const std::lock_guard lock(mutex_);
      if (!aborted_.ok()) return aborted_;
      ncclResult_t state = ncclSuccess;
      const ncclResult_t result = ncclCommGetAsyncError(comm_, &state);
      COHORT_RETURN_IF_ERROR(nccl_status(result, "ncclCommGetAsyncError", comm_));
      COHORT_RETURN_IF_ERROR(nccl_status(state, call, comm_));
      taken_ = state == ncclSuccess;
      if (taken_) return {};
    }
    if (waited >= patience)
      return deadline_exceeded(
          concat(call, ": other ranks did not come within ", seconds(patience), " s"));
    if (waited < kSpin)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(kNap);
  }
}

Status NcclLink::status() const {
  const std::lock_guard lock(mutex_);
  if (!aborted_.ok() || comm_ == nullptr) return aborted_;
  ncclResult_t state = ncclSuccess;
  const ncclResult_t result = ncclCommGetAsyncError(comm_, &state);
  COHORT_RETURN_IF_ERROR(nccl_status(result, "ncclCommGetAsyncError", comm_));
  return nccl_status(state, "NCCL", comm_);
}

void NcclLink::abort(const Status& why) {
  ncclComm_t comm = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (!aborted_.ok()) return;
    aborted_ = why;
    comm = std::exchange(comm_, nullptr);
  }
  // Outside of the lock: it waits for what runs on the GPU, and nobody else has `comm` any more.
  if (comm != nullptr) nccl_release(ncclCommAbort(comm), "ncclCommAbort");
}

NcclLink::~NcclLink() {
  if (comm_ == nullptr) return;
  if (status().ok() && call("ncclCommFinalize", kFarewell, ncclCommFinalize).ok()) {
    nccl_release(ncclCommDestroy(comm_), "ncclCommDestroy");
    return;
  }
  abort(cancelled(name_ + " has ended"));
}

}  // namespace cohort
