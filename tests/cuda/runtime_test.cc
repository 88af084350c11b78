// SPDX-License-Identifier: Apache-2.0
// The emulated runtime against what the CUDA Runtime API manual (API) and the CUDA C++ Programming
// Guide (PG) say of devices, errors, streams and events. Each test names the section.
#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdlib>
#include <set>
#include <string>
#include <thread>

#include "tests/cuda/runtime_fixture.h"

namespace cohort::test {
namespace {
using ::testing::HasSubstr;

void add_one(void* p) { ++*static_cast<int*>(p); }
void call_cuda(void* p) {
  int device = 0;
  *static_cast<cudaError_t*>(p) = cudaGetDevice(&device);
}

// API "Device Management", cudaSetDevice: an ordinal must be below cudaGetDeviceCount; the current
// device belongs to the calling thread.
TEST_F(RuntimeTest, CurrentDeviceIsOfTheThread) {
  emu::set_device_count(3);
  int count = 0;
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
  EXPECT_EQ(count, 3);
  EXPECT_EQ(cudaSetDevice(3), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaSetDevice(-1), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaSetDevice(2), cudaSuccess);
  int here = -1, there = -1;
  EXPECT_EQ(cudaGetDevice(&here), cudaSuccess);
  std::thread([&] { EXPECT_EQ(cudaGetDevice(&there), cudaSuccess); }).join();
  EXPECT_EQ(here, 2);
  EXPECT_EQ(there, 0);
}

// API "Device Management", cudaGetDeviceCount: cudaErrorNoDevice where there is none.
TEST_F(RuntimeTest, NoDevice) {
  emu::set_device_count(0);
  int count = -1;
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorNoDevice);
  EXPECT_EQ(count, 0);
}

// API "Device Management", cudaDeviceGetPCIBusId: domain:bus:device.function in 13 characters.
TEST_F(RuntimeTest, BusIdsTellDevicesApart) {
  emu::set_device_count(8);
  std::set<std::string> ids;
  for (int i = 0; i < 8; ++i) {
    char id[13];
    ASSERT_EQ(cudaDeviceGetPCIBusId(id, sizeof id, i), cudaSuccess);
    EXPECT_EQ(std::string(id).size(), 12u);
    ids.insert(id);
  }
  EXPECT_EQ(ids.size(), 8u);
  char small[12];
  EXPECT_EQ(cudaDeviceGetPCIBusId(small, sizeof small, 0), cudaErrorInvalidValue);
}

// API "Device Management": properties and attributes are the same facts. PG "Compute Capabilities":
// figures of 8.0.
TEST_F(RuntimeTest, PropertiesAndAttributesAgree) {
  cudaDeviceProp p;
  ASSERT_EQ(cudaGetDeviceProperties(&p, 0), cudaSuccess);
  const auto attribute = [](cudaDeviceAttr a) {
    int v = -1;
    EXPECT_EQ(cudaDeviceGetAttribute(&v, a, 0), cudaSuccess);
    return v;
  };
  EXPECT_EQ(attribute(cudaDevAttrComputeCapabilityMajor), p.major);
  EXPECT_EQ(attribute(cudaDevAttrMultiProcessorCount), p.multiProcessorCount);
  EXPECT_EQ(attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin), 163 << 10);
  EXPECT_EQ(p.sharedMemPerBlockOptin, std::size_t{163 << 10});
  EXPECT_EQ(p.sharedMemPerBlock, std::size_t{48 << 10});
  EXPECT_EQ(p.warpSize, 32);
  int v;
  EXPECT_EQ(cudaDeviceGetAttribute(&v, cudaDevAttrKernelExecTimeout, 0), cudaErrorNotSupported);
  EXPECT_TRUE(reported("not emulated"));
}

// API "Version Management": a CUDA 13 runtime says 1000 * major + 10 * minor.
TEST_F(RuntimeTest, Versions) {
  int driver = 0, runtime = 0;
  EXPECT_EQ(cudaDriverGetVersion(&driver), cudaSuccess);
  EXPECT_EQ(cudaRuntimeGetVersion(&runtime), cudaSuccess);
  EXPECT_EQ(runtime, CUDART_VERSION);
  EXPECT_GE(driver, runtime);
}

// API "Error Handling": cudaGetLastError resets to cudaSuccess, cudaPeekAtLastError does not; the
// error is of the host thread.
TEST_F(RuntimeTest, LastErrorIsKeptUntilRead) {
  EXPECT_EQ(cudaSetDevice(99), cudaErrorInvalidDevice);
  std::thread([] { EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess); }).join();
  EXPECT_EQ(cudaPeekAtLastError(), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_STREQ(cudaGetErrorName(cudaErrorMemoryAllocation), "cudaErrorMemoryAllocation");
  EXPECT_STREQ(cudaGetErrorString(cudaErrorMemoryAllocation), "out of memory");
  EXPECT_STREQ(cudaGetErrorString(static_cast<cudaError_t>(12345)), "unrecognized error code");
}

// PG "Default Stream": this project uses explicit streams only, so the emulation has none.
TEST_F(RuntimeTest, DefaultStreamIsRejected) {
  EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaLaunchHostFunc(cudaStreamLegacy, add_one, nullptr), cudaErrorInvalidResourceHandle);
  EXPECT_TRUE(reported("default stream"));
  cudaStream_t s;
  EXPECT_EQ(cudaStreamCreateWithFlags(&s, cudaStreamDefault), cudaErrorInvalidValue);
}

// PG "Streams": commands of a stream run in order; nothing runs on the calling thread's time.
TEST_F(RuntimeTest, StreamsAreAsynchronousAndInOrder) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    emu::set_schedule(emu::Schedule::random, seed);
    Stream s;
    std::string order;
    struct Step {
      std::string* order;
      char name;
    } steps[] = {{&order, 'a'}, {&order, 'b'}, {&order, 'c'}};
    for (Step& step : steps)
      ASSERT_EQ(cudaLaunchHostFunc(
                    s,
                    [](void* p) {
                      auto* at = static_cast<Step*>(p);
                      at->order->push_back(at->name);
                    },
                    &step),
                cudaSuccess);
    EXPECT_EQ(order, "");
    EXPECT_EQ(cudaStreamSynchronize(s), cudaSuccess);
    EXPECT_EQ(order, "abc");
  }
}

// API "Stream Management", cudaStreamQuery: cudaErrorNotReady until all is done. Here each look
// lets one piece of work run, so that a polling loop ends.
TEST_F(RuntimeTest, PollingAStreamMakesProgress) {
  Stream s;
  int n = 0;
  for (int i = 0; i < 100; ++i) ASSERT_EQ(cudaLaunchHostFunc(s, add_one, &n), cudaSuccess);
  int polls = 0;
  while (cudaStreamQuery(s) == cudaErrorNotReady) ++polls;
  EXPECT_GT(polls, 1);
  EXPECT_LE(polls, 100);
  EXPECT_EQ(n, 100);
  EXPECT_EQ(cudaGetLastError(), cudaErrorNotReady);
}

// API "Stream Management", cudaStreamDestroy: returns immediately, work that is left completes.
TEST_F(RuntimeTest, DestroyedStreamFinishesItsWork) {
  int n = 0;
  Event e;
  {
    Stream s;
    ASSERT_EQ(cudaLaunchHostFunc(s, add_one, &n), cudaSuccess);
    ASSERT_EQ(cudaEventRecord(e, s), cudaSuccess);
  }
  EXPECT_EQ(n, 0);
  EXPECT_EQ(cudaEventSynchronize(e), cudaSuccess);
  EXPECT_EQ(n, 1);
}

// API "Stream Management", cudaStreamDestroy: a destroyed stream must not be used.
TEST_F(RuntimeTest, DestroyedHandlesAreReported) {
  cudaStream_t s;
  ASSERT_EQ(cudaStreamCreateWithPriority(&s, cudaStreamNonBlocking, -100), cudaSuccess);
  ASSERT_EQ(cudaStreamDestroy(s), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(s), cudaErrorInvalidResourceHandle);
  cudaEvent_t e;
  ASSERT_EQ(cudaEventCreateWithFlags(&e, cudaEventDisableTiming), cudaSuccess);
  ASSERT_EQ(cudaEventDestroy(e), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(e), cudaErrorInvalidResourceHandle);
  EXPECT_TRUE(reported("not an event"));
}

// API "Stream Management", cudaDeviceGetStreamPriorityRange: lower numbers are greater priorities.
TEST_F(RuntimeTest, PriorityRange) {
  int least = 99, greatest = 99;
  EXPECT_EQ(cudaDeviceGetStreamPriorityRange(&least, &greatest), cudaSuccess);
  EXPECT_LE(greatest, least);
  EXPECT_EQ(cudaDeviceGetStreamPriorityRange(nullptr, nullptr), cudaSuccess);
}

// API "Event Management", cudaEventRecord: an event that was never recorded is complete; recording
// again replaces what it stands for, and waits made before keep the old meaning.
TEST_F(RuntimeTest, EventsStandForTheirLatestRecord) {
  Stream a, b;
  Event e;
  EXPECT_EQ(cudaEventQuery(e), cudaSuccess);
  int before = 0, after = 0;
  ASSERT_EQ(cudaLaunchHostFunc(a, add_one, &before), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(e, a), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(b, e, 0), cudaSuccess);
  ASSERT_EQ(cudaLaunchHostFunc(a, add_one, &after), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(e, a), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(b), cudaSuccess);
  EXPECT_EQ(before, 1);
  EXPECT_EQ(after, 0);
  EXPECT_EQ(cudaEventSynchronize(e), cudaSuccess);
  EXPECT_EQ(after, 1);
}

// API "Event Management", cudaEventQuery.
TEST_F(RuntimeTest, PollingAnEventMakesProgress) {
  Stream s;
  Event e;
  int n = 0;
  ASSERT_EQ(cudaLaunchHostFunc(s, add_one, &n), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(e, s), cudaSuccess);
  ASSERT_EQ(cudaLaunchHostFunc(s, add_one, &n), cudaSuccess);
  int polls = 0;
  while (cudaEventQuery(e) == cudaErrorNotReady) ++polls;
  EXPECT_GE(polls, 1);
  EXPECT_EQ(n, 1);
  EXPECT_EQ(cudaStreamSynchronize(s), cudaSuccess);
}

// API "Event Management", cudaEventRecord: event and stream must be of the same device;
// cudaStreamWaitEvent: they may be of different ones.
TEST_F(RuntimeTest, EventsAcrossDevices) {
  emu::set_device_count(2);
  Event e0;
  Stream s0;
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  Stream s1;
  int n = 0;
  EXPECT_EQ(cudaEventRecord(e0, s1), cudaErrorInvalidResourceHandle);
  EXPECT_TRUE(reported("another device"));
  ASSERT_EQ(cudaLaunchHostFunc(s0, add_one, &n), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(e0, s0), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(s1, e0, 0), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(s1), cudaSuccess);
  EXPECT_EQ(n, 1);
}

// API "Event Management", cudaEventElapsedTime: errors of events without timing, without a record,
// and not complete.
TEST_F(RuntimeTest, ElapsedTime) {
  Stream s;
  Event start(cudaEventDefault), end(cudaEventDefault), untimed;
  float ms = -1;
  EXPECT_EQ(cudaEventElapsedTime(&ms, start, end), cudaErrorInvalidResourceHandle);
  ASSERT_EQ(cudaEventRecord(start, s), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(untimed, s), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(end, s), cudaSuccess);
  EXPECT_EQ(cudaEventElapsedTime(&ms, start, untimed), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaEventElapsedTime(&ms, start, end), cudaErrorNotReady);
  ASSERT_EQ(cudaStreamSynchronize(s), cudaSuccess);
  EXPECT_EQ(cudaEventElapsedTime(&ms, start, end), cudaSuccess);
  EXPECT_GE(ms, 0);
}

// PG "Multi-Device System": a kernel launch fails on a stream of another device.
TEST_F(RuntimeTest, LaunchNeedsTheStreamsDevice) {
  emu::set_device_count(2);
  Stream s;
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  EXPECT_EQ(emu::enqueue(s, "kernel", [] {}), cudaErrorInvalidResourceHandle);
  EXPECT_TRUE(reported("is current"));
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  EXPECT_EQ(emu::enqueue(s, "kernel", [] {}), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(s), cudaSuccess);
}

// PG "Host Functions (Callbacks)": a host function must not call CUDA.
TEST_F(RuntimeTest, HostFunctionsMustNotCallCuda) {
  Stream s;
  cudaError_t inside = cudaSuccess;
  ASSERT_EQ(cudaLaunchHostFunc(s, call_cuda, &inside), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(s), cudaSuccess);
  EXPECT_EQ(inside, cudaErrorNotPermitted);
  EXPECT_TRUE(reported("host function"));
}

// API "Device Management", cudaDeviceSynchronize: all streams of the current device, no other.
TEST_F(RuntimeTest, DeviceSynchronizeWaitsForTheDevice) {
  emu::set_device_count(2);
  Stream a, b;
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  Stream other;
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  int n = 0, m = 0;
  for (auto s : {cudaStream_t(a), cudaStream_t(b)})
    ASSERT_EQ(cudaLaunchHostFunc(s, add_one, &n), cudaSuccess);
  ASSERT_EQ(cudaLaunchHostFunc(other, add_one, &m), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(n, 2);
  EXPECT_EQ(m, 0);
  EXPECT_EQ(cudaStreamSynchronize(other), cudaSuccess);
}

// API "Execution Control", cudaFuncSetAttribute, and "Occupancy". PG "Compute Capabilities": 2,048
// threads and 164 KiB of shared memory on a multiprocessor of 8.0, 1 KiB of it reserved per block.
TEST_F(RuntimeTest, SharedMemoryLimitsOfKernels) {
  const auto* kernel = reinterpret_cast<const void*>(&add_one);
  int blocks = -1;
  EXPECT_EQ(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, 256, 0), cudaSuccess);
  EXPECT_EQ(blocks, 8);
  EXPECT_EQ(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, 256, 100 << 10),
            cudaSuccess);
  EXPECT_EQ(blocks, 0);
  const auto attribute = cudaFuncAttributeMaxDynamicSharedMemorySize;
  EXPECT_EQ(cudaFuncSetAttribute(kernel, attribute, 164 << 10), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFuncSetAttribute(kernel, attribute, 100 << 10), cudaSuccess);
  cudaFuncAttributes a;
  EXPECT_EQ(cudaFuncGetAttributes(&a, kernel), cudaSuccess);
  EXPECT_EQ(a.maxDynamicSharedSizeBytes, 100 << 10);
  EXPECT_EQ(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, 256, 53 << 10),
            cudaSuccess);
  EXPECT_EQ(blocks, 3);
}

// Faults are of one call, by name, after as many good ones as asked for.
TEST_F(RuntimeTest, InjectedFaultHitsOneCall) {
  emu::fail_next("cudaMalloc", cudaErrorMemoryAllocation, 1);
  void* p = nullptr;
  void* q = nullptr;
  EXPECT_EQ(cudaMalloc(&p, 16), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&q, 16), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaMalloc(&q, 16), cudaSuccess);
  EXPECT_EQ(cudaFree(p), cudaSuccess);
  EXPECT_EQ(cudaFree(q), cudaSuccess);
  Stream s;
  emu::fail_next("kernel launch", cudaErrorLaunchFailure);
  EXPECT_EQ(emu::enqueue(s, "kernel", [] {}), cudaErrorLaunchFailure);
}

// API "Data types", cudaErrorLaunchFailure and the like: every later call gives the same error.
TEST_F(RuntimeTest, LostDeviceFailsEveryCall) {
  emu::set_device_count(2);
  cudaStream_t s;
  cudaEvent_t e;
  ASSERT_EQ(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaEventCreateWithFlags(&e, cudaEventDisableTiming), cudaSuccess);
  int n = 0;
  ASSERT_EQ(cudaLaunchHostFunc(s, add_one, &n), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(e, s), cudaSuccess);
  emu::lose_device(0);
  EXPECT_EQ(cudaEventQuery(e), cudaErrorDevicesUnavailable);
  EXPECT_EQ(cudaStreamSynchronize(s), cudaErrorDevicesUnavailable);
  void* p = nullptr;
  EXPECT_EQ(cudaMalloc(&p, 16), cudaErrorDevicesUnavailable);
  EXPECT_EQ(cudaGetLastError(), cudaErrorDevicesUnavailable);
  EXPECT_EQ(cudaGetLastError(), cudaErrorDevicesUnavailable);
  EXPECT_EQ(cudaEventDestroy(e), cudaErrorDevicesUnavailable);
  EXPECT_EQ(cudaStreamDestroy(s), cudaErrorDevicesUnavailable);
  EXPECT_EQ(n, 0);
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  Stream other;
  EXPECT_EQ(cudaStreamSynchronize(other), cudaSuccess);
}

// A wait that is under way ends when the device goes.
TEST_F(RuntimeTest, LosingADeviceEndsWaits) {
  emu::set_host_threads(0);
  Stream s;
  emu::submit(s, [] { return emu::Work{"never", {}, [] { return false; }, {}, {}, false}; });
  std::thread loser([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    emu::lose_device(0, cudaErrorECCUncorrectable);
  });
  EXPECT_EQ(cudaStreamSynchronize(s), cudaErrorECCUncorrectable);
  loser.join();
}

// Processes that cannot call the controls.
TEST_F(RuntimeTest, EnvironmentSetsUpAProcess) {
  ASSERT_EQ(setenv("COHORT_EMULATED_DEVICES", "5", 1), 0);
  ASSERT_EQ(setenv("COHORT_EMULATED_MEMORY", "12345678", 1), 0);
  emu::reset();
  unsetenv("COHORT_EMULATED_DEVICES");
  unsetenv("COHORT_EMULATED_MEMORY");
  int count = 0;
  std::size_t free = 0, total = 0;
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
  EXPECT_EQ(count, 5);
  EXPECT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  EXPECT_EQ(total, 12345678u);
}
}  // namespace
}  // namespace cohort::test
