// SPDX-License-Identifier: Apache-2.0
// A process that uses the emulated runtime, put back to its first state by each test.
#pragma once
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <vector>

#include "tests/cuda_emulation/runtime.h"

namespace cohort::test {
class Stream {
 public:
  Stream() { EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess); }
  Stream(const Stream&) = delete;
  ~Stream() { cudaStreamDestroy(stream_); }
  operator cudaStream_t() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

class Event {
 public:
  explicit Event(unsigned flags = cudaEventDisableTiming) {
    EXPECT_EQ(cudaEventCreateWithFlags(&event_, flags), cudaSuccess);
  }
  Event(const Event&) = delete;
  ~Event() { cudaEventDestroy(event_); }
  operator cudaEvent_t() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

// n values in the current device's memory.
template <class T>
class OnDevice {
 public:
  explicit OnDevice(std::size_t n) {
    void* p = nullptr;
    EXPECT_EQ(cudaMalloc(&p, n * sizeof(T)), cudaSuccess);
    values_ = static_cast<T*>(p);
  }
  OnDevice(const OnDevice&) = delete;
  ~OnDevice() { cudaFree(values_); }
  operator T*() const { return values_; }

 private:
  T* values_ = nullptr;
};

// n values in page-locked host memory.
template <class T>
class Pinned {
 public:
  explicit Pinned(std::size_t n) {
    void* p = nullptr;
    EXPECT_EQ(cudaMallocHost(&p, n * sizeof(T)), cudaSuccess);
    values_ = static_cast<T*>(p);
  }
  Pinned(const Pinned&) = delete;
  ~Pinned() { cudaFreeHost(values_); }
  operator T*() const { return values_; }

 private:
  T* values_ = nullptr;
};

class RuntimeTest : public ::testing::Test {
 protected:
  RuntimeTest() {
    emu::reset();
    emu::set_host_threads(1);
    cudaSetDevice(0);
    cudaGetLastError();
    before_ = emu::live();
  }
  ~RuntimeTest() override {
    if (!expects_reports_) {
      EXPECT_THAT(emu::reports(), ::testing::IsEmpty());
    }
    emu::reset();
    cudaSetDevice(0);
    const emu::Live now = emu::live();
    EXPECT_EQ(now.streams, before_.streams);
    EXPECT_EQ(now.events, before_.events);
    EXPECT_EQ(now.graphs, before_.graphs);
    EXPECT_EQ(now.execs, before_.execs);
    EXPECT_EQ(now.device_bytes, before_.device_bytes);
    EXPECT_EQ(now.pinned_bytes, before_.pinned_bytes);
  }
  // Whether a misuse was reported in such words. Without a call, any report fails the test.
  bool reported(const std::string& words) {
    expects_reports_ = true;
    for (const std::string& r : emu::reports())
      if (r.find(words) != std::string::npos) return true;
    return false;
  }

 private:
  emu::Live before_{};
  bool expects_reports_ = false;
};
}  // namespace cohort::test
