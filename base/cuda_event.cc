// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <thread>
#include <utility>

#include "base/device_cuda.h"

namespace cohort {
namespace {

// A step of a small model ends within the spin, where a nap would double its time.
constexpr Duration kSpin = std::chrono::microseconds(200);
constexpr Duration kShortestNap = std::chrono::microseconds(20);
constexpr Duration kLongestNap = std::chrono::microseconds(50);  // 0.5 % of a step of 10 ms

}  // namespace

CudaEvent::CudaEvent(const CudaDevice& device) {
  device.use();
  cuda_check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreateWithFlags");
}

CudaEvent::~CudaEvent() {
  if (event_ != nullptr) cuda_release(cudaEventDestroy(event_), "cudaEventDestroy");
}

CudaEvent::CudaEvent(CudaEvent&& other) noexcept
    : event_(std::exchange(other.event_, nullptr)),
      recorded_(std::exchange(other.recorded_, false)) {}

CudaEvent& CudaEvent::operator=(CudaEvent&& other) noexcept {
  std::swap(event_, other.event_);
  std::swap(recorded_, other.recorded_);
  return *this;
}

void CudaEvent::record(cudaStream_t stream) {
  cuda_check(cudaEventRecord(event_, stream), "cudaEventRecord");
  recorded_ = true;
}

void CudaEvent::before(cudaStream_t stream) const {
  if (recorded_) cuda_check(cudaStreamWaitEvent(stream, event_, 0), "cudaStreamWaitEvent");
}

bool CudaEvent::done() const {
  if (!recorded_) return true;
  const cudaError_t error = cudaEventQuery(event_);
  if (error == cudaErrorNotReady) {
    (void)cudaGetLastError();
    return false;
  }
  cuda_check(error, "cudaEventQuery");
  return true;
}

Status CudaEvent::wait(Duration patience, const std::function<Status()>& stopped) const {
  const TimePoint start = std::chrono::steady_clock::now();
  Duration nap = kShortestNap;
  while (true) {
    // Looked at before the event is: a thread that was suspended here must not give up on work that
    // has ended meanwhile.
    const Duration waited = std::chrono::steady_clock::now() - start;
    try {
      if (done()) return {};
    } catch (const Failure& failure) {
      return failure.status();
    }
    if (stopped) COHORT_RETURN_IF_ERROR(stopped());
    if (waited >= patience)
      return deadline_exceeded(concat("the GPU has not finished within ", seconds(patience), " s"));
    if (waited < kSpin) continue;
    std::this_thread::sleep_for(std::min(nap, patience - waited));
    nap = std::min(nap * 2, kLongestNap);
  }
}

}  // namespace cohort
