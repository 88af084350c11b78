// SPDX-License-Identifier: Apache-2.0
// One rank's NCCL communicator, non-blocking, that any thread may abort at any time (NCCL 2.28 user
// guide, "Fault Tolerance"). NCCL's own calls on it are made under a lock, which is held for no
// longer than it takes to hand work over; waiting happens outside of it.
#pragma once
#include <nccl.h>

#include <functional>
#include <mutex>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/status.h"

namespace cohort {

class NcclLink {
 public:
  explicit NcclLink(std::string name) : name_(std::move(name)) {}
  ~NcclLink();  // ends the communicator with its peers, or aborts it where they do not come
  NcclLink(const NcclLink&) = delete;

  Status start(const ncclUniqueId& id, int rank, int size, Duration patience);

  // Makes a call and waits until NCCL has taken it: it is then on its stream. Errors are named
  // `call`. DEADLINE_EXCEEDED after `patience`; the reason of abort() once that was called.
  Status call(const char* call, Duration patience,
              const std::function<ncclResult_t(ncclComm_t)>& make);

  // An error that NCCL found meanwhile, or the reason of abort().
  Status status() const;
  void abort(const Status& why);

 private:
  Status wait_until_taken(const char* call, Duration patience);

  const std::string name_;
  mutable std::mutex mutex_;
  ncclComm_t comm_ = nullptr;  // null: not started, or aborted
  bool taken_ = true;          // the latest call was; else NCCL allows no other
  Status aborted_;
};

// Several calls as one. In a group calls cannot fail one by one without ending it.
ncclResult_t nccl_group(const std::function<ncclResult_t()>& calls);

}  // namespace cohort
