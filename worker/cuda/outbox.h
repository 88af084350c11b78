// SPDX-License-Identifier: Apache-2.0
// What is on its way to another rank's GPU: a send takes its bytes from here, so that the step can
// go on and overwrite its own. A place is used again when its send is over.
#pragma once
#include <cstddef>
#include <vector>

#include "base/device_cuda.h"

namespace cohort {

class Outbox {
 public:
  // queue: the stream that sends are on.
  Outbox(CudaDevice& device, cudaStream_t queue, int places, size_t bytes)
      : device_(device), queue_(queue) {
    for (int i = 0; i < places; i++) places_.push_back({device.allocate(bytes), CudaEvent(device)});
  }

  // Memory that compute may write from now on, and that send() may read.
  std::byte* place() {
    current_ = (current_ + 1) % places_.size();
    places_[current_].gone.before(device_.compute());
    return places_[current_].memory.data();
  }
  // After the send of what place() gave was enqueued.
  void sent() { places_[current_].gone.record(queue_); }

 private:
  struct Place {
    Buffer memory;
    CudaEvent gone;
  };
  CudaDevice& device_;
  const cudaStream_t queue_;
  std::vector<Place> places_;
  size_t current_ = 0;
};

}  // namespace cohort
