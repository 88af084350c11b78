// SPDX-License-Identifier: Apache-2.0
// A GPU as one rank uses it: its memory, and the five streams of docs/step.md section 9. Included
// only by code of the CUDA backend.
//
//   compute  all kernels and GEMMs          high priority
//   comm     collectives of the tp group    high priority
//   pipe     activations from stage to stage
//   tokens   sampled tokens from the last stage to the first, which may be read much later
//   copy     step inputs in, sampled tokens out
//
// The streams are ordered by events alone (order); there is no default stream. One thread enqueues
// at a time; memory() and error() may be called by any thread.
#pragma once
#include <cuda_runtime_api.h>

#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/device.h"
#include "base/failure.h"
#include "base/status.h"

namespace cohort {

// OK, or a Status that says which call failed, on what, and what CUDA says of it.
Status cuda_status(cudaError_t error, const char* call);
// The same, thrown as Failure.
void cuda_check(cudaError_t error, const char* call);
// For what is given back in destructors, where an error can only be logged: a lost device gives it
// for every call.
void cuda_release(cudaError_t error, const char* call);

class CudaDevice final : public Device {
 public:
  // FAILED_PRECONDITION in one line where there is no driver or no such GPU.
  static Result<std::shared_ptr<CudaDevice>> open(int ordinal);
  ~CudaDevice() override;

  DeviceKind kind() const override { return DeviceKind::cuda; }
  const std::string& name() const override { return name_; }
  DeviceMemory memory() const override;
  Buffer allocate(size_t bytes) override;
  void upload(void* to, const void* from, size_t bytes) override;
  void download(void* to, const void* from, size_t bytes) override;
  // Page-locked host memory, zeroed: what asynchronous copies need. Throws OutOfMemory.
  Buffer allocate_pinned(size_t bytes);

  int ordinal() const { return ordinal_; }
  int multiprocessors() const { return multiprocessors_; }
  cudaStream_t compute() const { return compute_; }
  cudaStream_t comm() const { return comm_; }
  cudaStream_t pipe() const { return pipe_; }
  cudaStream_t tokens() const { return tokens_; }
  cudaStream_t copy() const { return copy_; }

  // Makes it the calling thread's current device. Every thread that calls CUDA for this rank does
  // so first.
  void use() const;
  // What is enqueued on `to` from now on runs after everything enqueued on `from` so far. Works in
  // a capture too, and carries it from one stream to the other.
  void order(cudaStream_t from, cudaStream_t to);

 private:
  CudaDevice() = default;
  Status set_up(int ordinal);
  void copy_now(void* to, const void* from, size_t bytes, cudaMemcpyKind kind);

  int ordinal_ = 0, multiprocessors_ = 0;
  std::string name_;
  cudaStream_t compute_ = nullptr, comm_ = nullptr, pipe_ = nullptr, tokens_ = nullptr,
               copy_ = nullptr;
  cudaEvent_t edge_ = nullptr;  // of order(): recorded and waited for in one go
};

// A point in a stream. Movable.
class CudaEvent {
 public:
  explicit CudaEvent(const CudaDevice& device);
  ~CudaEvent();
  CudaEvent(CudaEvent&& other) noexcept;
  CudaEvent& operator=(CudaEvent&& other) noexcept;

  void record(cudaStream_t stream);
  // What is enqueued on `stream` from now on runs after the last record. Nothing if there was none.
  void before(cudaStream_t stream) const;
  bool done() const;  // also where nothing was recorded
  // Waits on the host. DEADLINE_EXCEEDED after `patience`; the device's own error where it has one.
  // Polls: spins briefly, then sleeps in short naps, and gives up early with `stopped`'s Status
  // when that says so (for aborts from other threads; may be null).
  Status wait(Duration patience, const std::function<Status()>& stopped = nullptr) const;

 private:
  cudaEvent_t event_ = nullptr;
  bool recorded_ = false;
};

// Work captured once and launched as one piece. Movable.
class CudaGraph {
 public:
  // Captures what `enqueue` puts on the device's compute stream and on streams ordered after it;
  // all of them must be ordered before compute again at the end. Throws Failure.
  static CudaGraph capture(CudaDevice& device, const std::function<void()>& enqueue);
  CudaGraph() = default;
  ~CudaGraph();
  CudaGraph(CudaGraph&& other) noexcept;
  CudaGraph& operator=(CudaGraph&& other) noexcept;

  explicit operator bool() const { return exec_ != nullptr; }
  void launch(cudaStream_t stream) const;

 private:
  cudaGraphExec_t exec_ = nullptr;
};

}  // namespace cohort
