// SPDX-License-Identifier: Apache-2.0
// An ordered queue of work on one device. On the CPU it is the thread pool of the rank: an op has
// finished when its call returns. Ops take a Stream first and decide nothing by globals, so that
// several ranks can live in one process. A Stream is used by one thread at a time.
#pragma once
#include <memory>

#include "base/cpu.h"
#include "base/threads.h"

namespace cohort {

enum class DeviceKind { cpu, cuda };

class Stream {
 public:
  Stream(int threads, Isa isa) : isa_(isa), threads_(threads) {}

  DeviceKind device() const { return DeviceKind::cpu; }
  Isa isa() const { return isa_; }
  ThreadPool& threads() { return threads_; }

  // Where the kernels of a backend keep what lives as long as the stream (scratch memory, library
  // handles). Only kernels/ looks inside.
  std::shared_ptr<void>& kernel_state() { return kernel_state_; }

 private:
  const Isa isa_;
  ThreadPool threads_;
  std::shared_ptr<void> kernel_state_;
};

}  // namespace cohort
