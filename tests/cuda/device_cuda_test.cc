// SPDX-License-Identifier: Apache-2.0
// A rank's GPU: what it refuses to open, memory, the order between its streams, events.
#include "base/device_cuda.h"

#include <cstring>
#include <numeric>
#include <set>
#include <thread>

#include "base/open_device.h"
#include "tests/cuda/runtime_fixture.h"

namespace cohort {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

class DeviceCudaTest : public test::RuntimeTest {
 protected:
  static std::shared_ptr<CudaDevice> device(int ordinal = 0) {
    auto opened = CudaDevice::open(ordinal);
    if (!opened.ok()) throw Failure(opened.status());
    return *std::move(opened);
  }
  static Status why_not(int ordinal = 0) { return CudaDevice::open(ordinal).status(); }
  // Work that does not end before release() says so.
  void hold(cudaStream_t stream) {
    cuda_check(emu::submit(stream,
                           [this] {
                             return emu::Work{"held", {}, [this] { return !held_; }, [] {}, {}};
                           }),
               "submit");
  }
  void release() {
    held_ = false;
    emu::notify();
  }

 private:
  bool held_ = true;
};

TEST_F(DeviceCudaTest, SaysWhatItIs) {
  emu::set_device_count(3);
  emu::set_model({.major = 9, .minor = 0, .multiprocessors = 132});
  EXPECT_EQ(count_cuda_devices(), 3);
  const auto opened = open_cuda_device(2);
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();
  EXPECT_EQ((*opened)->kind(), DeviceKind::cuda);
  EXPECT_EQ((*opened)->name(), "Emulated GPU 2, device 2");
  const auto& cuda = static_cast<const CudaDevice&>(**opened);
  EXPECT_EQ(cuda.ordinal(), 2);
  EXPECT_EQ(cuda.multiprocessors(), 132);
  const std::set<cudaStream_t> streams = {cuda.compute(), cuda.comm(), cuda.pipe(), cuda.tokens(),
                                          cuda.copy()};
  EXPECT_EQ(streams.size(), 5u);
}

TEST_F(DeviceCudaTest, RefusesInOneLineWhereThereIsNoGpu) {
  emu::set_device_count(0);
  EXPECT_EQ(count_cuda_devices(), 0);
  Status why = why_not();
  EXPECT_EQ(why.code(), Code::kFailedPrecondition);
  EXPECT_THAT(why.message(),
              AllOf(HasSubstr("no GPU"), HasSubstr("runtime 13."), Not(HasSubstr("\n"))));

  emu::set_device_count(2);
  why = why_not(5);
  EXPECT_EQ(why.code(), Code::kFailedPrecondition);
  EXPECT_EQ(why.message(), "this host has 2 GPUs; device 5 does not exist");
  EXPECT_FALSE(why_not(-1).ok());

  emu::fail_next("cudaGetDeviceCount", cudaErrorInsufficientDriver);
  why = why_not();
  EXPECT_EQ(why.code(), Code::kFailedPrecondition);
  EXPECT_THAT(why.message(), AllOf(HasSubstr("driver is older"), Not(HasSubstr("\n"))));
}

TEST_F(DeviceCudaTest, RefusesAnOldGpuByName) {
  emu::set_model({.major = 7, .minor = 5});
  const Status why = why_not();
  EXPECT_EQ(why.code(), Code::kFailedPrecondition);
  EXPECT_EQ(why.message(), "Emulated GPU 0, device 0 has compute capability 7.5; 8.0 is needed");
}

TEST_F(DeviceCudaTest, NamesTheCallThatFailsAndLeavesNothingBehind) {
  for (const char* call :
       {"cudaGetDeviceProperties", "cudaDeviceGetStreamPriorityRange",
        "cudaStreamCreateWithPriority", "cudaEventCreateWithFlags", "cudaSetDevice"})
    for (int skip = 0; skip < (std::string(call) == "cudaStreamCreateWithPriority" ? 5 : 1);
         skip++) {
      emu::fail_next(call, cudaErrorUnknown, skip);
      const Status why = why_not();
      EXPECT_EQ(why.code(), Code::kInternal);
      EXPECT_THAT(why.message(), AllOf(HasSubstr(call), HasSubstr("cudaErrorUnknown"),
                                       HasSubstr(cudaGetErrorString(cudaErrorUnknown))));
    }
}

TEST_F(DeviceCudaTest, MemoryIsZeroedAndGoesBack) {
  const auto gpu = device();
  const DeviceMemory before = gpu->memory();
  EXPECT_EQ(before.total, 256 << 20);
  {
    const Buffer buffer = gpu->allocate(1 << 20);
    EXPECT_EQ(buffer.size(), size_t(1) << 20);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 256, 0u);
    EXPECT_EQ(gpu->memory().free, before.free - (1 << 20));
    std::vector<char> host(1 << 20, 'x');
    gpu->download(host.data(), buffer.data(), host.size());
    EXPECT_THAT(host, Each(0));
  }
  EXPECT_EQ(gpu->memory().free, before.free);
  EXPECT_EQ(gpu->allocate(0).data(), nullptr);
  const Buffer pinned = gpu->allocate_pinned(5000);
  EXPECT_TRUE(std::all_of(pinned.data(), pinned.data() + 5000,
                          [](std::byte b) { return b == std::byte(0); }));
}

TEST_F(DeviceCudaTest, SaysHowMuchMemoryIsMissingAndWhatToDo) {
  emu::set_device_memory(size_t(1) << 30);
  const auto gpu = device();
  const Buffer taken = gpu->allocate(size_t(512) << 20);
  try {
    gpu->allocate(size_t(1536) << 20);
    FAIL() << "more memory than there is";
  } catch (const OutOfMemory& error) {
    EXPECT_EQ(error.status().code(), Code::kResourceExhausted);
    EXPECT_EQ(error.status().message(),
              "device memory: 1.5 GiB asked for, 0.5 GiB of 1.0 GiB free on Emulated GPU 0, "
              "device 0; use more ranks, a smaller --kv-memory or a smaller --max-batch");
  }
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_NE(gpu->allocate(1000).data(), nullptr);
}

TEST_F(DeviceCudaTest, SaysThatPinnedMemoryIsMissing) {
  const auto gpu = device();
  emu::fail_next("cudaMallocHost", cudaErrorMemoryAllocation);
  try {
    gpu->allocate_pinned(3 << 20);
    FAIL() << "no error";
  } catch (const OutOfMemory& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("3.0 MiB"), HasSubstr("ulimit -l")));
  }
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(DeviceCudaTest, UploadsAndDownloadsComeAfterWhatWasEnqueued) {
  const auto gpu = device();
  std::vector<int> in(1000), out(1000);
  std::iota(in.begin(), in.end(), 7);
  for (int seed = 1; seed <= 20; seed++) {
    emu::set_schedule(emu::Schedule::random, seed);
    const Buffer a = gpu->allocate(4000), b = gpu->allocate(4000);
    gpu->upload(a.data(), in.data(), 4000);
    for (const cudaStream_t stream :
         {gpu->comm(), gpu->pipe(), gpu->tokens(), gpu->copy(), gpu->compute()}) {
      cuda_check(cudaMemsetAsync(b.data(), 0, 4000, gpu->compute()), "cudaMemsetAsync");
      gpu->order(gpu->compute(), stream);
      cuda_check(cudaMemcpyAsync(b.data(), a.data(), 4000, cudaMemcpyDeviceToDevice, stream),
                 "cudaMemcpyAsync");
      gpu->download(out.data(), b.data(), 4000);
      EXPECT_EQ(out, in);
    }
  }
}

// A value goes from stream to stream and back.
int through_streams(CudaDevice& gpu, bool ordered) {
  const Buffer hops = gpu.allocate(8 * 4), from = gpu.allocate_pinned(4),
               to = gpu.allocate_pinned(4);
  *from.as<int>() = 42;
  const cudaStream_t route[] = {gpu.copy(), gpu.compute(), gpu.comm(), gpu.compute(),
                                gpu.pipe(), gpu.compute(), gpu.copy()};
  const void* at = from.data();
  for (int i = 0; i < 7; i++) {
    if (i > 0 && ordered) gpu.order(route[i - 1], route[i]);
    void* next = i == 6 ? static_cast<void*>(to.data()) : hops.as<int>() + i;
    cuda_check(cudaMemcpyAsync(next, at, 4, cudaMemcpyDefault, route[i]), "cudaMemcpyAsync");
    at = next;
  }
  CudaEvent event(gpu);
  event.record(gpu.copy());
  EXPECT_TRUE(event.wait(seconds(20)).ok());
  const int got = *to.as<int>();
  gpu.upload(hops.data(), &got, 0);  // what is left over ends before the memory goes
  return got;
}

TEST_F(DeviceCudaTest, OrderHoldsInEverySchedule) {
  const auto gpu = device();
  emu::set_schedule(emu::Schedule::newest_first);
  EXPECT_EQ(through_streams(*gpu, true), 42);
  EXPECT_NE(through_streams(*gpu, false), 42) << "this test would not notice a missing order";
  for (int seed = 1; seed <= 20; seed++) {
    emu::set_schedule(emu::Schedule::random, seed);
    EXPECT_EQ(through_streams(*gpu, true), 42);
  }
}

TEST_F(DeviceCudaTest, AnEventThatWasNeverRecordedIsDone) {
  const auto gpu = device();
  CudaEvent event(*gpu);
  EXPECT_TRUE(event.done());
  EXPECT_TRUE(event.wait(milliseconds(0)).ok());
  event.before(gpu->comm());
}

TEST_F(DeviceCudaTest, WaitsForAnEventNoLongerThanItMay) {
  emu::set_host_threads(0);  // held work is no deadlock
  const auto gpu = device();
  CudaEvent event(*gpu);
  hold(gpu->comm());
  event.record(gpu->comm());
  EXPECT_FALSE(event.done());
  const TimePoint start = std::chrono::steady_clock::now();
  const Status late = event.wait(milliseconds(30));
  EXPECT_EQ(late.code(), Code::kDeadlineExceeded);
  EXPECT_THAT(late.message(), HasSubstr("0.03 s"));
  EXPECT_GE(std::chrono::steady_clock::now() - start, milliseconds(30));

  int asked = 0;
  const Status stopped =
      event.wait(seconds(60), [&] { return ++asked < 3 ? Status() : aborted("told to stop"); });
  EXPECT_EQ(stopped, aborted("told to stop"));

  std::thread later([&] {
    std::this_thread::sleep_for(milliseconds(20));
    release();
  });
  CudaEvent moved = std::move(event);
  EXPECT_TRUE(moved.wait(seconds(60)).ok());
  later.join();
  EXPECT_TRUE(moved.done());
}

TEST_F(DeviceCudaTest, AWaitEndsWithTheErrorOfTheDevice) {
  emu::set_host_threads(0);
  const auto gpu = device();
  CudaEvent event(*gpu);
  hold(gpu->compute());
  event.record(gpu->compute());
  emu::lose_device(0, cudaErrorECCUncorrectable);
  const Status lost = event.wait(seconds(60));
  EXPECT_EQ(lost.code(), Code::kInternal);
  EXPECT_THAT(lost.message(),
              AllOf(HasSubstr("cudaEventQuery"), HasSubstr("cudaErrorECCUncorrectable")));
  EXPECT_THROW(gpu->memory(), Failure);
  EXPECT_THROW(gpu->allocate(4), Failure);
  EXPECT_THROW(gpu->order(gpu->compute(), gpu->comm()), Failure);
  char byte = 0;
  EXPECT_THROW(gpu->download(&byte, &byte, 1), Failure);
}

}  // namespace
}  // namespace cohort
