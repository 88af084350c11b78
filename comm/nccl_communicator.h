// SPDX-License-Identifier: Apache-2.0
// A Communicator over NCCL (NVIDIA, NCCL 2.28 user guide). Its verbs take device memory and only
// enqueue: they return at once, ordered after what is on the device's compute stream, and what is
// enqueued on compute afterwards runs after them. In a capture they become part of the graph.
//
// Errors come late, from a stream: status() tells them, and abort() ends what hangs. The host's
// Communicator `meeting` is used to exchange the group's id, at construction only.
//
// A message of any size may wait, on its stream, for the other side: ranks that send to each other
// need two groups, or an order in which they cannot wait for each other. Memory of allocate() that
// NCCL has registered lives as long as the communicator.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "base/device_cuda.h"
#include "comm/communicator.h"

namespace cohort {

// Which of the device's streams carries the verbs.
enum class NcclQueue { comm, pipe, tokens };

struct NcclOptions {
  NcclQueue queue = NcclQueue::comm;
  // all_reduce adds pieces in the order of the tree (gather, then ordered additions) instead of
  // leaving the order to NCCL.
  bool ordered = false;
  // What is enqueued on compute after a send does not wait for it: the caller keeps the buffer
  // unchanged until an event that it records on the queue's stream after the send.
  bool detached_send = false;
  Duration start_timeout = std::chrono::seconds(60);
};

// Called by all members of `meeting` alike. FAILED_PRECONDITION, UNAVAILABLE, DEADLINE_EXCEEDED or
// RESOURCE_EXHAUSTED with NCCL's or the device's own words. max_gather_floats: the most that an
// ordered all_reduce gathers, pieces of all ranks times count (its memory is taken here).
Result<std::unique_ptr<Communicator>> make_nccl_communicator(std::shared_ptr<CudaDevice> device,
                                                             Communicator& meeting,
                                                             const std::string& label,
                                                             const NcclOptions& options,
                                                             int64_t max_gather_floats);

}  // namespace cohort
