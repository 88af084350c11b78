// SPDX-License-Identifier: Apache-2.0
// gpu::launch on emulated streams.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "kernels/cuda/portable.h"
#include "tests/cuda_emulation/runtime.h"

namespace cohort {
namespace {
using testing::AllOf;
using testing::HasSubstr;

class LaunchOnStreamTest : public testing::Test {
 protected:
  LaunchOnStreamTest() {
    emu::reset();
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
    void* p = nullptr;
    EXPECT_EQ(cudaMallocHost(&p, sizeof(int)), cudaSuccess);
    out_ = static_cast<int*>(p);
    *out_ = 0;
  }
  ~LaunchOnStreamTest() override {
    emu::reset();
    EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
    EXPECT_EQ(cudaFreeHost(out_), cudaSuccess);
  }
  cudaStream_t stream_ = nullptr;
  int* out_ = nullptr;
};

struct Weights {
  int w[3];
};
__global__ void add_kernel(int* out, Weights weights, long long more) {
  *out += weights.w[2] + static_cast<int>(more);
}

// CUDA C++ Programming Guide (CPG), "Execution Configuration": arguments are copied when the kernel
// is launched; it runs later.
TEST_F(LaunchOnStreamTest, ArgumentsAreCopied) {
  Weights weights{{1, 2, 3}};
  EXPECT_EQ(gpu::launch(add_kernel, 2, 1, 0, stream_, out_, weights, 40), cudaSuccess);
  weights.w[2] = 1000;
  EXPECT_EQ(*out_, 0);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(*out_, 2 * 43);
}

__global__ void large_kernel(int* out) {
  auto* shared = gpu::dynamic_shared<char>();
  shared[(96 << 10) - 1] = 5;
  *out = shared[(96 << 10) - 1];
}

// CPG, "Shared Memory" of compute capability 8.x and 9.0, and "Error Checking": cudaGetLastError
// returns the error of a launch.
TEST_F(LaunchOnStreamTest, LargeSharedMemoryMustBeAllowedFirst) {
  EXPECT_EQ(gpu::launch(large_kernel, 1, 1, 96 << 10, stream_, out_), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
  EXPECT_EQ(gpu::allow_shared(large_kernel, 96 << 10), cudaSuccess);
  EXPECT_EQ(gpu::launch(large_kernel, 1, 1, 96 << 10, stream_, out_), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(*out_, 5);
}

TEST_F(LaunchOnStreamTest, WrongConfigurationsDoNotRun) {
  EXPECT_EQ(gpu::launch(large_kernel, dim3(1, 65536), 1, 0, stream_, out_),
            cudaErrorInvalidConfiguration);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidConfiguration);
  EXPECT_EQ(gpu::launch(large_kernel, 1, 1025, 0, stream_, out_), cudaErrorInvalidConfiguration);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(*out_, 0);
}

__global__ void divergent_kernel() {
  if (threadIdx.x < 32)
    __syncthreads();
  else
    __syncthreads();
}

TEST_F(LaunchOnStreamTest, TheWaitReportsTheMistakeOfAKernel) {
  EXPECT_EQ(gpu::launch(divergent_kernel, 1, 64, 0, stream_), cudaSuccess);
  std::string text;
  try {
    (void)cudaStreamSynchronize(stream_);
  } catch (const emu::Error& e) {
    text = e.what;
  }
  EXPECT_THAT(text, AllOf(HasSubstr("different __syncthreads"), HasSubstr("launch_test.cc:")));
}
}  // namespace
}  // namespace cohort
