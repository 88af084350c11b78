// SPDX-License-Identifier: Apache-2.0
#include "tools/gpu_check/timing.h"

#include <algorithm>
#include <vector>

namespace cohort::gpu_check {
namespace {

class TimedEvent {
 public:
  TimedEvent() {
    cuda_check(cudaEventCreateWithFlags(&event_, cudaEventDefault), "cudaEventCreate");
  }
  ~TimedEvent() { cuda_release(cudaEventDestroy(event_), "cudaEventDestroy"); }
  TimedEvent(const TimedEvent&) = delete;
  void record(cudaStream_t stream) {
    cuda_check(cudaEventRecord(event_, stream), "cudaEventRecord");
  }
  double seconds_since(const TimedEvent& start) const {
    cuda_check(cudaEventSynchronize(event_), "cudaEventSynchronize");
    float ms = 0;
    cuda_check(cudaEventElapsedTime(&ms, start.event_, event_), "cudaEventElapsedTime");
    return std::max(double(ms), 1e-6) * 1e-3;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

class Watch {
 public:
  explicit Watch(cudaStream_t stream) : stream_(stream) {}
  double seconds(const std::function<void()>& work) {
    start_.record(stream_);
    work();
    end_.record(stream_);
    return end_.seconds_since(start_);
  }

 private:
  const cudaStream_t stream_;
  TimedEvent start_, end_;
};

}  // namespace

double seconds_of(CudaDevice& device, const std::function<void(int)>& enqueue,
                  const Timing& timing) {
  const cudaStream_t stream = device.compute();
  Watch watch(stream);
  // The first run loads code, grows scratch memory and lets libraries choose.
  watch.seconds([&] { enqueue(0); });
  const double once = watch.seconds([&] { enqueue(0); });
  const int repeats =
      timing.tiny ? 2 : int(std::clamp(4e-3 / once, 1.0, double(timing.most_repeats)));
  const CudaGraph graph = CudaGraph::capture(device, [&] {
    for (int i = 0; i < repeats; i++) enqueue(i);
  });
  const auto launch = [&] { return watch.seconds([&] { graph.launch(stream); }); };
  const double estimate = launch();
  const int launches = timing.tiny ? 1 : int(std::clamp(timing.seconds / estimate, 5.0, 200.0));
  std::vector<double> times;
  for (int i = 0; i < launches; i++) times.push_back(launch());
  std::nth_element(times.begin(), times.begin() + launches / 2, times.end());
  return times[size_t(launches / 2)] / repeats;
}

}  // namespace cohort::gpu_check
