// SPDX-License-Identifier: Apache-2.0
// The emulated runtime against what the CUDA Runtime API manual (API) and the CUDA C++ Programming
// Guide (PG) say of memory and copies. Each test names the section.
#include <cuda_runtime_api.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "tests/cuda/runtime_fixture.h"

namespace cohort::test {
namespace {
using ::testing::Each;
using ::testing::ElementsAre;

// What the device memory holds now, by a pageable copy, which returns only when it is done.
template <class T>
std::vector<T> download(const T* from, std::size_t n, cudaStream_t s) {
  std::vector<T> values(n);
  EXPECT_EQ(cudaMemcpyAsync(values.data(), from, n * sizeof(T), cudaMemcpyDeviceToHost, s),
            cudaSuccess);
  return values;
}

std::size_t free_bytes() {
  std::size_t free = 0, total = 0;
  EXPECT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  return free;
}

// API "Memory Management", cudaMalloc: cudaErrorMemoryAllocation; cudaMemGetInfo: what is free of
// the device. Each device has its own memory.
TEST_F(RuntimeTest, OutOfMemory) {
  emu::set_device_count(2);
  emu::set_device_memory(1 << 20);
  const auto before = free_bytes();
  void *a = nullptr, *b = nullptr;
  ASSERT_EQ(cudaMalloc(&a, 600 << 10), cudaSuccess);
  EXPECT_EQ(before - free_bytes(), std::size_t{600 << 10});
  EXPECT_EQ(cudaMalloc(&b, 600 << 10), cudaErrorMemoryAllocation);
  EXPECT_EQ(b, nullptr);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  EXPECT_EQ(free_bytes(), std::size_t{1 << 20});
  EXPECT_EQ(cudaMalloc(&b, 600 << 10), cudaSuccess);
  EXPECT_EQ(cudaFree(a), cudaSuccess);
  EXPECT_EQ(cudaFree(b), cudaSuccess);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  EXPECT_EQ(free_bytes(), before);
  EXPECT_EQ(cudaMalloc(&a, SIZE_MAX - 5), cudaErrorMemoryAllocation);
}

// API "Memory Management", cudaMalloc: suitably aligned for any kind of variable, not cleared.
TEST_F(RuntimeTest, NewMemoryIsNaN) {
  Stream s;
  OnDevice<float> x(33);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(static_cast<float*>(x)) % 256, 0u);
  for (float v : download<float>(x, 33, s)) EXPECT_TRUE(std::isnan(v));
  Pinned<float> host(3);
  EXPECT_TRUE(std::isnan(host[2]));
}

// API "Memory Management", cudaFree: no operation on null; an error on what was not allocated or
// was freed before.
TEST_F(RuntimeTest, WrongFrees) {
  EXPECT_EQ(cudaFree(nullptr), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(nullptr), cudaSuccess);
  void* p = nullptr;
  ASSERT_EQ(cudaMalloc(&p, 64), cudaSuccess);
  EXPECT_EQ(cudaFree(static_cast<char*>(p) + 16), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFreeHost(p), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(p), cudaSuccess);
  EXPECT_EQ(cudaFree(p), cudaErrorInvalidValue);
  EXPECT_TRUE(reported("not the start"));
}

// PG "Implicit Synchronization": freeing device memory waits for the device.
TEST_F(RuntimeTest, FreeWaitsForTheDevice) {
  Stream s;
  Pinned<int> host(1);
  host[0] = 0;
  void* p = nullptr;
  ASSERT_EQ(cudaMalloc(&p, 4), cudaSuccess);
  ASSERT_EQ(cudaMemsetAsync(p, 7, 4, s), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(host, p, 4, cudaMemcpyDeviceToHost, s), cudaSuccess);
  EXPECT_EQ(host[0], 0);
  EXPECT_EQ(cudaFree(p), cudaSuccess);
  EXPECT_EQ(host[0], 0x07070707);
}

// API "API synchronization behavior", Memcpy, Asynchronous: page-locked memory is read when the
// copy runs, so a buffer that is used again too early carries the later values.
TEST_F(RuntimeTest, PinnedSourceIsReadWhenTheCopyRuns) {
  Stream s;
  Pinned<int> host(1);
  OnDevice<int> x(1);
  host[0] = 1;
  ASSERT_EQ(cudaMemcpyAsync(x, host, 4, cudaMemcpyHostToDevice, s), cudaSuccess);
  host[0] = 2;
  EXPECT_THAT(download<int>(x, 1, s), ElementsAre(2));
}

// The same section: pageable memory is staged, so it may be used again when the call returns;
// copies to pageable memory return only once they are done.
TEST_F(RuntimeTest, PageableMemoryIsFreeWhenTheCallReturns) {
  Stream s;
  for (const std::size_t n : {std::size_t{100}, std::size_t{100000}}) {
    OnDevice<int> x(n);
    std::vector<int> host(n, 1);
    ASSERT_EQ(cudaMemcpyAsync(x, host.data(), n * 4, cudaMemcpyHostToDevice, s), cudaSuccess);
    host.assign(n, 2);
    EXPECT_THAT(download<int>(x, n, s), Each(1));
  }
}

// The same section: host to host is fully synchronous.
TEST_F(RuntimeTest, HostToHostIsSynchronous) {
  Stream s;
  Pinned<int> a(1), b(1);
  a[0] = 5;
  ASSERT_EQ(cudaMemcpyAsync(b, a, 4, cudaMemcpyHostToHost, s), cudaSuccess);
  EXPECT_EQ(b[0], 5);
}

// PG "Default Stream" and "Non-default Streams": cudaMemcpy is of the default stream, which
// non-blocking streams do not wait for, nor it for them.
TEST_F(RuntimeTest, PlainCopyDoesNotWaitForStreams) {
  Stream s;
  OnDevice<int> x(1);
  int host = 1;
  ASSERT_EQ(cudaMemcpy(x, &host, 4, cudaMemcpyHostToDevice), cudaSuccess);
  ASSERT_EQ(cudaMemsetAsync(x, 0, 4, s), cudaSuccess);
  host = 9;
  ASSERT_EQ(cudaMemcpy(&host, x, 4, cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_EQ(host, 1);
  EXPECT_EQ(cudaStreamSynchronize(s), cudaSuccess);
}

// API "Memory Management", cudaMemcpyAsync: the kind must match the pointers, ranges must lie in
// their allocations, and may not overlap.
TEST_F(RuntimeTest, WrongCopiesAreErrors) {
  Stream s;
  OnDevice<char> x(100), y(100);
  std::vector<char> host(200);
  const auto copy = [&](void* to, const void* from, std::size_t n, cudaMemcpyKind kind) {
    return cudaMemcpyAsync(to, from, n, kind, s);
  };
  EXPECT_EQ(copy(x, host.data(), 100, cudaMemcpyDeviceToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(copy(host.data(), x, 100, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_TRUE(reported("direction"));
  EXPECT_EQ(copy(x, host.data(), 101, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_TRUE(reported("1 bytes past the end of an allocation of 100"));
  EXPECT_EQ(copy(y, x + 50, 51, cudaMemcpyDefault), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemsetAsync(x + 1, 0, 100, s), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemsetAsync(host.data(), 0, 10, s), cudaErrorInvalidValue);
  EXPECT_EQ(copy(x + 10, x, 20, cudaMemcpyDeviceToDevice), cudaErrorInvalidValue);
  EXPECT_TRUE(reported("overlap"));
  EXPECT_EQ(copy(x, nullptr, 0, cudaMemcpyHostToDevice), cudaSuccess);
  EXPECT_EQ(copy(x + 50, x, 50, cudaMemcpyDefault), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(s), cudaSuccess);
}

TEST_F(RuntimeTest, FreedMemoryIsNotCopied) {
  Stream s;
  OnDevice<char> x(100);
  void* gone = nullptr;
  ASSERT_EQ(cudaMalloc(&gone, 100), cudaSuccess);
  ASSERT_EQ(cudaFree(gone), cudaSuccess);
  EXPECT_EQ(cudaMemcpyAsync(x, gone, 10, cudaMemcpyDeviceToDevice, s), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemsetAsync(gone, 0, 10, s), cudaErrorInvalidValue);
  EXPECT_TRUE(reported("memory that was freed"));
}

// PG "Peer-to-Peer Memory Access": needs cudaDeviceEnablePeerAccess, which this project never
// calls.
TEST_F(RuntimeTest, DevicesDoNotShareMemory) {
  emu::set_device_count(2);
  OnDevice<int> mine(1);
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  OnDevice<int> theirs(1);
  Stream s;
  EXPECT_EQ(cudaMemcpyAsync(theirs, mine, 4, cudaMemcpyDeviceToDevice, s), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemsetAsync(mine, 0, 4, s), cudaErrorInvalidValue);
  EXPECT_TRUE(reported("memory of device 0"));
}

// API "Memory Management", cudaMemcpy2DAsync: rows of `width` bytes, `pitch` apart, which may not
// be smaller.
TEST_F(RuntimeTest, PitchedCopy) {
  Stream s;
  OnDevice<int> x(12);
  ASSERT_EQ(cudaMemsetAsync(x, 0, 48, s), cudaSuccess);
  const std::vector<int> rows = {1, 2, 3, 4, 5, 6};
  ASSERT_EQ(cudaMemcpy2DAsync(x + 1, 16, rows.data(), 8, 8, 3, cudaMemcpyHostToDevice, s),
            cudaSuccess);
  EXPECT_THAT(download<int>(x, 12, s), ElementsAre(0, 1, 2, 0, 0, 3, 4, 0, 0, 5, 6, 0));
  EXPECT_EQ(cudaMemcpy2DAsync(x, 16, rows.data(), 8, 12, 2, cudaMemcpyHostToDevice, s),
            cudaErrorInvalidPitchValue);
  EXPECT_EQ(cudaMemcpy2DAsync(x + 1, 16, rows.data(), 8, 8, 4, cudaMemcpyHostToDevice, s),
            cudaErrorInvalidValue);
  EXPECT_TRUE(reported("past the end"));
}

// API "Memory Management", cudaFreeHost: a copy that has not run yet needs the memory.
TEST_F(RuntimeTest, PinnedMemoryFreedTooEarly) {
  Stream s;
  OnDevice<int> x(1);
  {
    Pinned<int> host(1);
    host[0] = 1;
    ASSERT_EQ(cudaMemcpyAsync(x, host, 4, cudaMemcpyHostToDevice, s), cudaSuccess);
  }
  EXPECT_EQ(cudaStreamSynchronize(s), cudaErrorIllegalAddress);
  EXPECT_TRUE(reported("freed before"));
  emu::reset();
}

// API "Stream Ordered Memory Allocator": usable by later work of the stream, until the stream
// reaches the free; the bytes are the device's until then.
TEST_F(RuntimeTest, StreamOrderedMemory) {
  emu::set_device_memory(1 << 20);
  Stream s;
  void *p = nullptr, *q = nullptr;
  ASSERT_EQ(cudaMallocAsync(&p, 600 << 10, s), cudaSuccess);
  EXPECT_EQ(cudaMallocAsync(&q, 600 << 10, s), cudaErrorMemoryAllocation);
  Pinned<int> host(1);
  ASSERT_EQ(cudaMemsetAsync(p, 1, 4, s), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(host, p, 4, cudaMemcpyDeviceToHost, s), cudaSuccess);
  ASSERT_EQ(cudaFreeAsync(p, s), cudaSuccess);
  EXPECT_EQ(cudaMemsetAsync(p, 1, 4, s), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFreeAsync(p, s), cudaErrorInvalidValue);
  EXPECT_TRUE(reported("memory that was freed"));
  EXPECT_EQ(free_bytes(), std::size_t{424 << 10});
  EXPECT_EQ(cudaStreamSynchronize(s), cudaSuccess);
  EXPECT_EQ(host[0], 0x01010101);
  EXPECT_EQ(free_bytes(), std::size_t{1 << 20});
}

// The same section: another stream may use it only behind an event.
TEST_F(RuntimeTest, StreamOrderedMemoryNeedsAnEdge) {
  emu::set_schedule(emu::Schedule::newest_first);
  Stream a, b;
  void* p = nullptr;
  ASSERT_EQ(cudaMallocAsync(&p, 4, a), cudaSuccess);
  ASSERT_EQ(cudaMemsetAsync(p, 1, 4, b), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(b), cudaErrorIllegalAddress);
  EXPECT_TRUE(reported("not allocated yet"));
  emu::reset();
  EXPECT_EQ(cudaFree(p), cudaSuccess);
}

#if defined(__SANITIZE_ADDRESS__)
// Allocations have their exact size, and freed ones are poisoned: kernels that stray are stopped.
TEST_F(RuntimeTest, AddressSanitizerKnowsDeviceMemory) {
  OnDevice<char> x(100);
  volatile char* bytes = x;
  EXPECT_DEATH(bytes[100] = 0, "heap-buffer-overflow");
  void* p = nullptr;
  ASSERT_EQ(cudaMalloc(&p, 100), cudaSuccess);
  ASSERT_EQ(cudaFree(p), cudaSuccess);
  volatile char* gone = static_cast<char*>(p);
  EXPECT_DEATH(gone[50] = 0, "use-after-poison");
}
#else
// What no copy checks, a kernel's stray write, shows when the memory is freed.
TEST_F(RuntimeTest, OverrunsShowWhenMemoryIsFreed) {
  void* p = nullptr;
  ASSERT_EQ(cudaMalloc(&p, 100), cudaSuccess);
  volatile char* bytes = static_cast<char*>(p);
  bytes[100] = 0;
  EXPECT_EQ(cudaFree(p), cudaSuccess);
  EXPECT_TRUE(reported("past the end of an allocation of 100 bytes"));
}

TEST_F(RuntimeTest, FreedMemoryReadsAsNaNAndKeepsWatch) {
  void* p = nullptr;
  ASSERT_EQ(cudaMalloc(&p, 4), cudaSuccess);
  volatile float* gone = static_cast<float*>(p);
  *gone = 1;
  ASSERT_EQ(cudaFree(p), cudaSuccess);
  EXPECT_TRUE(std::isnan(*gone));
  *gone = 2;
  for (int i = 0; i < 3; ++i) {
    void* big = nullptr;
    ASSERT_EQ(cudaMalloc(&big, 33 << 20), cudaSuccess);
    ASSERT_EQ(cudaFree(big), cudaSuccess);
  }
  EXPECT_TRUE(reported("freed memory was written to"));
}
#endif
}  // namespace
}  // namespace cohort::test
