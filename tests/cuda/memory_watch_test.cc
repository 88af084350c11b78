// SPDX-License-Identifier: Apache-2.0
#include "worker/cuda/memory_watch.h"

#include <gtest/gtest.h>

#include <vector>

namespace cohort {
namespace {

class FakeDevice : public Device {
 public:
  DeviceKind kind() const override { return DeviceKind::cuda; }
  const std::string& name() const override { return name_; }
  DeviceMemory memory() const override { return {.free = free << 20, .total = 1000 << 20}; }
  Buffer allocate(size_t) override { return {}; }
  void upload(void*, const void*, size_t) override {}
  void download(void*, const void*, size_t) override {}

  int64_t free = 500;  // MiB

 private:
  const std::string name_ = "a GPU";
};

TEST(MemoryWatchTest, WarnsOnceWhenMemoryGetsLow) {
  FakeDevice device;
  std::vector<std::string> warnings;
  MemoryWatch watch(device, [&](const std::string& text) { warnings.push_back(text); });
  const auto steps = [&](int64_t free) {
    device.free = free;
    for (int i = 0; i < MemoryWatch::kSteps; i++) watch.step();
  };
  steps(20);
  EXPECT_TRUE(warnings.empty());
  steps(19);
  ASSERT_EQ(warnings.size(), 1u);
  for (const char* word : {"19 of 1000 MiB", "a GPU", "--kv-memory"})
    EXPECT_NE(warnings[0].find(word), std::string::npos) << warnings[0];
  steps(5);
  EXPECT_EQ(warnings.size(), 1u);
  steps(300);
  steps(5);
  EXPECT_EQ(warnings.size(), 2u);
}

}  // namespace
}  // namespace cohort
