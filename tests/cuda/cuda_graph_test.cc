// SPDX-License-Identifier: Apache-2.0
// Work that is captured once and launched again.
#include <stdexcept>

#include "base/device_cuda.h"
#include "tests/cuda/runtime_fixture.h"

namespace cohort {
namespace {

using ::testing::HasSubstr;

class CudaGraphTest : public test::RuntimeTest {
 protected:
  CudaGraphTest() : gpu_(CudaDevice::open(0).value()), memory_(gpu_->allocate(3 * sizeof(int))) {}
  int* cell(int i) const { return memory_.as<int>() + i; }
  void set(int i, int value) { gpu_->upload(cell(i), &value, sizeof value); }
  int get(int i) {
    int value = 0;
    gpu_->download(&value, cell(i), sizeof value);
    return value;
  }
  void copy(int from, int to, cudaStream_t stream) {
    cuda_check(cudaMemcpyAsync(cell(to), cell(from), sizeof(int), cudaMemcpyDeviceToDevice, stream),
               "cudaMemcpyAsync");
  }
  // 0 to 1 on comm, 1 to 2 on compute.
  void enqueue() {
    gpu_->order(gpu_->compute(), gpu_->comm());
    copy(0, 1, gpu_->comm());
    gpu_->order(gpu_->comm(), gpu_->compute());
    copy(1, 2, gpu_->compute());
  }

  const std::shared_ptr<CudaDevice> gpu_;
  const Buffer memory_;
};

TEST_F(CudaGraphTest, ReplaysWhatWasCapturedAcrossStreams) {
  for (int seed = 1; seed <= 20; seed++) {
    emu::set_schedule(emu::Schedule::random, seed);
    set(0, 100);
    set(2, 0);
    CudaGraph graph = CudaGraph::capture(*gpu_, [&] { enqueue(); });
    EXPECT_TRUE(bool(graph));
    EXPECT_EQ(get(2), 0) << "capturing runs nothing";
    for (int value : {5, 6, 7}) {
      set(0, value);
      graph.launch(gpu_->compute());
      EXPECT_EQ(get(2), value);
    }
    CudaGraph moved = std::move(graph);
    EXPECT_FALSE(bool(graph));
    set(0, 8);
    moved.launch(gpu_->compute());
    EXPECT_EQ(get(2), 8);
  }
}

TEST_F(CudaGraphTest, AnExceptionEndsTheCapture) {
  try {
    CudaGraph::capture(*gpu_, [&] {
      enqueue();
      throw std::runtime_error("the layer failed");
    });
    FAIL() << "no exception";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "the layer failed");
  }
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  set(0, 3);
  enqueue();
  EXPECT_EQ(get(2), 3) << "the streams work again";
}

TEST_F(CudaGraphTest, AnExceptionWhileStreamsAreForkedEndsTheCapture) {
  EXPECT_THROW(CudaGraph::capture(*gpu_,
                                  [&] {
                                    gpu_->order(gpu_->compute(), gpu_->comm());
                                    copy(0, 1, gpu_->comm());
                                    throw std::runtime_error("the collective failed");
                                  }),
               std::runtime_error);
  set(0, 4);
  enqueue();
  EXPECT_EQ(get(2), 4);
  reported("");  // the capture ended unjoined, which is what happened
}

TEST_F(CudaGraphTest, AStreamThatIsNotOrderedBackIsAnError) {
  try {
    CudaGraph::capture(*gpu_, [&] {
      gpu_->order(gpu_->compute(), gpu_->comm());
      copy(0, 1, gpu_->comm());
    });
    FAIL() << "no error";
  } catch (const Failure& failure) {
    EXPECT_THAT(failure.status().message(), HasSubstr("cudaErrorStreamCaptureUnjoined"));
  }
  reported("");
  set(0, 9);
  enqueue();
  EXPECT_EQ(get(2), 9);
}

TEST_F(CudaGraphTest, EveryFailingStepIsNamed) {
  for (const char* call : {"cudaStreamBeginCapture", "cudaGraphInstantiate", "cudaGraphUpload"}) {
    emu::fail_next(call, cudaErrorUnknown);
    try {
      CudaGraph::capture(*gpu_, [&] { enqueue(); });
      ADD_FAILURE() << call;
    } catch (const Failure& failure) {
      EXPECT_THAT(failure.status().message(), HasSubstr(call));
    }
  }
  const CudaGraph graph = CudaGraph::capture(*gpu_, [&] { enqueue(); });
  emu::fail_next("cudaGraphLaunch", cudaErrorUnknown);
  EXPECT_THROW(graph.launch(gpu_->compute()), Failure);
}

using CudaGraphDeathTest = CudaGraphTest;
TEST_F(CudaGraphDeathTest, MemoryIsNotTakenInACapture) {
  EXPECT_DEATH(CudaGraph::capture(*gpu_, [&] { gpu_->allocate(4); }), "before a capture");
}

}  // namespace
}  // namespace cohort
