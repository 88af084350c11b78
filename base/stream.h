// SPDX-License-Identifier: Apache-2.0
// An ordered queue of work on one device. On the CPU it is the thread pool of the rank: an op has
// finished when its call returns. On CUDA an op is enqueued on the device's compute stream and runs
// later. Ops take a Stream first and decide nothing by globals, so that several ranks can live in
// one process. A Stream is used by one thread at a time.
#pragma once
#include <memory>
#include <utility>

#include "base/cpu.h"
#include "base/device.h"
#include "base/dtype.h"
#include "base/threads.h"

namespace cohort {

class Stream {
 public:
  Stream(int threads, Isa isa)
      : isa_(isa), activations_(DType::f32), device_(make_cpu_device()), threads_(threads) {}
  // activations: f32, f16 or bf16, what layers compute in. threads: of the host, for loading.
  // fixed_order: see below.
  Stream(std::shared_ptr<Device> device, DType activations, int threads, bool fixed_order)
      : isa_(Isa::portable),
        activations_(activations),
        fixed_order_(fixed_order),
        device_(std::move(device)),
        threads_(threads) {}

  DeviceKind kind() const { return device_->kind(); }
  Device& device() const { return *device_; }
  Isa isa() const { return isa_; }
  // The type of activations between the ops of a layer. The residual stream is f32 everywhere.
  DType activations() const { return activations_; }
  // Whether every output element has one order of arithmetic whatever the batch: always on the CPU;
  // on a GPU where it was asked for, because the fastest algorithms depend on the batch's size.
  bool fixed_order() const { return fixed_order_; }
  ThreadPool& threads() { return threads_; }

  // Where the kernels of a backend keep what lives as long as the stream (scratch memory, library
  // handles). Only kernels/ looks inside. Gone before the device.
  std::shared_ptr<void>& kernel_state() { return kernel_state_; }

 private:
  const Isa isa_;
  const DType activations_;
  const bool fixed_order_ = true;
  const std::shared_ptr<Device> device_;
  ThreadPool threads_;
  std::shared_ptr<void> kernel_state_;
};

}  // namespace cohort
