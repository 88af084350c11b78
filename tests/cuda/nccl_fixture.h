// SPDX-License-Identifier: Apache-2.0
// Ranks as threads, each with an emulated GPU and a host's group to meet in.
#pragma once
#include <functional>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "base/device_cuda.h"
#include "comm/nccl_communicator.h"
#include "tests/cuda/runtime_fixture.h"
#include "tests/support/local_ranks.h"

namespace cohort {

// What a rank's thread has.
class NcclRank {
 public:
  explicit NcclRank(World& world) : gpu(CudaDevice::open(world.rank()).value()) {
    std::vector<int> all(size_t(world.size()));
    std::iota(all.begin(), all.end(), 0);
    meeting = world.group(all, "tp").value();
  }

  // Returns when all ranks have it: one that aborts must not end the start of another.
  std::unique_ptr<Communicator> group(const NcclOptions& options = {}, int64_t max_gather = 0) {
    auto made = make_nccl_communicator(gpu, *meeting, "tp", options, max_gather).value();
    EXPECT_TRUE(meeting->barrier().ok());
    return made;
  }
  template <class T>
  Buffer on_device(const std::vector<T>& values) {
    Buffer buffer = gpu->allocate(values.size() * sizeof(T));
    if (!values.empty()) gpu->upload(buffer.data(), values.data(), values.size() * sizeof(T));
    return buffer;
  }
  template <class T>
  std::vector<T> on_host(const Buffer& buffer) {
    std::vector<T> values(buffer.size() / sizeof(T));
    gpu->download(values.data(), buffer.data(), buffer.size());
    return values;
  }
  // Puts the values into device memory late, on the compute stream: work that is not ordered after
  // compute reads the poison of fresh memory.
  template <class T>
  void enqueue_values(const Buffer& to, const std::vector<T>& values) {
    pinned.push_back(gpu->allocate_pinned(values.size() * sizeof(T)));
    std::copy(values.begin(), values.end(), pinned.back().as<T>());
    cuda_check(cudaMemcpyAsync(to.data(), pinned.back().data(), values.size() * sizeof(T),
                               cudaMemcpyHostToDevice, gpu->compute()),
               "cudaMemcpyAsync");
  }

  const std::shared_ptr<CudaDevice> gpu;
  std::unique_ptr<Communicator> meeting;
  std::vector<Buffer> pinned;
};

class NcclTest : public test::RuntimeTest {
 protected:
  void run_ranks(int ranks, const std::function<void(NcclRank&)>& body) {
    emu::set_device_count(ranks);
    emu::set_host_threads(ranks);
    run_local_ranks(ranks, [&](World& world) {
      struct Done {
        ~Done() { emu::host_thread_done(); }
      } done;
      NcclRank rank(world);
      body(rank);
    });
  }
};

// Throws where a verb fails, so that a rank ends at once.
inline void require(const Status& status) {
  if (!status.ok()) throw std::runtime_error(status.to_string());
}

}  // namespace cohort
