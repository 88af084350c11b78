// SPDX-License-Identifier: Apache-2.0
// Where a rank computes. The CPU is a device too, so that nothing above kernels/ asks which one it
// has: memory comes from the device, and moves to and from it by name.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/buffer.h"

namespace cohort {

enum class DeviceKind { cpu, cuda };

// Bytes.
struct DeviceMemory {
  int64_t free = 0, total = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual DeviceKind kind() const = 0;
  // "NVIDIA H200, device 0", for messages.
  virtual const std::string& name() const = 0;
  virtual DeviceMemory memory() const = 0;

  // Zeroed memory that kernels of this device can use; aligned to 256 bytes at least. Throws
  // OutOfMemory. The Buffer must not outlive the device.
  virtual Buffer allocate(size_t bytes) = 0;
  // Blocking copies between host memory and memory of this device: done when they return, and after
  // everything that was enqueued before. For loading, not for steps. Throw Failure.
  virtual void upload(void* to, const void* from, size_t bytes) = 0;
  virtual void download(void* to, const void* from, size_t bytes) = 0;
};

std::shared_ptr<Device> make_cpu_device();

}  // namespace cohort
