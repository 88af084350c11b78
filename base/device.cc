// SPDX-License-Identifier: Apache-2.0
#include "base/device.h"

#include <unistd.h>

#include <cstring>

namespace cohort {
namespace {

class CpuDevice final : public Device {
 public:
  DeviceKind kind() const override { return DeviceKind::cpu; }
  const std::string& name() const override { return name_; }
  DeviceMemory memory() const override {
    const int64_t page = sysconf(_SC_PAGESIZE);
    return {.free = sysconf(_SC_AVPHYS_PAGES) * page, .total = sysconf(_SC_PHYS_PAGES) * page};
  }
  Buffer allocate(size_t bytes) override { return Buffer(bytes); }
  void upload(void* to, const void* from, size_t bytes) override { copy(to, from, bytes); }
  void download(void* to, const void* from, size_t bytes) override { copy(to, from, bytes); }

 private:
  static void copy(void* to, const void* from, size_t bytes) {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }
  const std::string name_ = "CPU";
};

}  // namespace

std::shared_ptr<Device> make_cpu_device() { return std::make_shared<CpuDevice>(); }

}  // namespace cohort
