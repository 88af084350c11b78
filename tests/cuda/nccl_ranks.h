// SPDX-License-Identifier: Apache-2.0
// Ranks of an emulated NCCL communicator for tests, each a thread with a device of its own.
#pragma once
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include <cstddef>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/cuda_emulation/runtime.h"

namespace cohort::test {

// Device memory that tests read and write as values of T.
template <class T>
class Values {
 public:
  explicit Values(std::size_t n) : n_(n) {
    void* p = nullptr;
    EXPECT_EQ(cudaMalloc(&p, (n > 0 ? n : 1) * sizeof(T)), cudaSuccess);
    p_ = static_cast<T*>(p);
  }
  explicit Values(const std::vector<T>& v) : Values(v.size()) { put(v); }
  Values(const Values&) = delete;
  ~Values() { cudaFree(p_); }
  operator T*() const { return p_; }
  void put(const std::vector<T>& v) {
    EXPECT_EQ(cudaMemcpy(p_, v.data(), v.size() * sizeof(T), cudaMemcpyHostToDevice), cudaSuccess);
  }
  std::vector<T> get() const {
    std::vector<T> v(n_);
    EXPECT_EQ(cudaMemcpy(v.data(), p_, n_ * sizeof(T), cudaMemcpyDeviceToHost), cudaSuccess);
    return v;
  }

 private:
  T* p_ = nullptr;
  std::size_t n_;
};

struct Rank {
  int rank, size;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;

  void sync() const { EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess); }
  Rank(int r, int n) : rank(r), size(n) {
    EXPECT_EQ(cudaSetDevice(r), cudaSuccess);
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  }
  Rank(const Rank&) = delete;
  ~Rank() {
    if (comm != nullptr) ncclCommDestroy(comm);
    cudaStreamDestroy(stream);
  }
};

inline ncclUniqueId unique_id() {
  ncclUniqueId id;
  EXPECT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  return id;
}

// Runs f as n ranks of one communicator. What each rank threw, if it did.
inline std::vector<std::string> on_ranks(int n, const std::function<void(Rank&)>& f,
                                         bool init = true) {
  emu::set_device_count(n);
  emu::set_host_threads(n);
  const ncclUniqueId id = unique_id();
  std::vector<std::string> thrown(n);
  std::vector<std::thread> threads;
  for (int r = 0; r < n; ++r)
    threads.emplace_back([&, r] {
      try {
        Rank rank(r, n);
        if (init) {
          EXPECT_EQ(ncclCommInitRank(&rank.comm, n, id, r), ncclSuccess);
        }
        f(rank);
      } catch (const emu::Error& e) {
        thrown[r] = e.what;
      }
      emu::host_thread_done();
    });
  for (auto& t : threads) t.join();
  return thrown;
}

// The same, where nothing may be thrown.
inline void all_well(int n, const std::function<void(Rank&)>& f, bool init = true) {
  for (const auto& what : on_ranks(n, f, init)) EXPECT_EQ(what, "");
}

class NcclTest : public ::testing::Test {
 protected:
  void SetUp() override { emu::reset(); }
  void TearDown() override {
    emu::reset();
    EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
  }
};

}  // namespace cohort::test
