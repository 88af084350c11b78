// SPDX-License-Identifier: Apache-2.0
// What the GPU is and what it can do.
#include <fstream>

#include "base/check.h"
#include "kernels/cuda/state.h"
#include "tools/gpu_check/arrays.h"
#include "tools/gpu_check/parts.h"
#include "tools/gpu_check/probes.h"
#include "tools/gpu_check/timing.h"

namespace cohort::gpu_check {
namespace {

std::string version(int number) { return concat(number / 1000, ".", number % 1000 / 10); }

void describe(Report& report, const CudaDevice& device) {
  int driver = 0, runtime = 0;
  cuda_check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  cuda_check(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
  report.note("device", "", device.name());
  report.note("driver", "CUDA", version(driver));
  report.note("runtime", "CUDA", version(runtime));
  std::ifstream module("/proc/driver/nvidia/version");
  std::string line;
  if (std::getline(module, line)) report.note("kernel module", "", line);
  report.note("cublasLt", "", concat(cublasLtGetVersion()));
  report.add("memory", "total", double(device.memory().total) / double(1 << 30), "GiB");
  report.add("memory", "free", double(device.memory().free) / double(1 << 30), "GiB");
  report.add("multiprocessors", "", device.multiprocessors(), "SMs");
}

void measure_memory(Report& report, CudaDevice& device) {
  const int64_t bytes = report.tiny() ? int64_t(1) << 18 : int64_t(2) << 30;
  const std::string shape = report.tiny() ? "256 KiB" : "2 GiB";
  const Buffer from = device.allocate(size_t(bytes)), to = device.allocate(size_t(bytes)),
               sink = device.allocate(4);
  const int sms = device.multiprocessors();
  const Timing timing{.tiny = report.tiny(), .seconds = 0.5, .most_repeats = 4};
  const auto gigabytes = [&](int64_t moved, const std::function<void(int)>& f) {
    return double(moved) / seconds_of(device, f, timing) * 1e-9;
  };
  report.add(
      kCopy, shape + ", kernel, read + written",
      gigabytes(2 * bytes,
                [&](int) { copy_memory(device.compute(), sms, from.data(), to.data(), bytes); }),
      "GB/s");
  report.add(kCopy, shape + ", cudaMemcpy, read + written",
             gigabytes(2 * bytes,
                       [&](int) {
                         cuda_check(cudaMemcpyAsync(to.data(), from.data(), size_t(bytes),
                                                    cudaMemcpyDeviceToDevice, device.compute()),
                                    "cudaMemcpyAsync");
                       }),
             "GB/s");
  report.add(kRead, shape,
             gigabytes(bytes,
                       [&](int) {
                         read_memory(device.compute(), sms, from.data(), sink.as<uint32_t>(),
                                     bytes);
                       }),
             "GB/s");
}

void measure_gemm(Report& report, const std::shared_ptr<CudaDevice>& device) {
  const int64_t n = report.tiny() ? 64 : 8192;
  Stream stream(device, DType::bf16, 1, false);
  const Buffer x = random_array(*device, DType::bf16, n * n, 1),
               w = random_array(*device, DType::bf16, n * n, 2),
               y = device->allocate(size_t(2 * n * n));
  const cuda::Gemm gemm{.x = x.data(),
                        .w = w.data(),
                        .y = y.data(),
                        .in = DType::bf16,
                        .out = DType::bf16,
                        .rows = n,
                        .n = n,
                        .k = n,
                        .x_stride = n,
                        .w_stride = n,
                        .y_stride = n};
  const double seconds = seconds_of(*device, [&](int) { cuda::state(stream).gemm().run(gemm); },
                                    {.tiny = report.tiny(), .seconds = 1, .most_repeats = 4});
  report.add(kGemm, concat(n, " x ", n, " x ", n, ", random values"),
             2.0 * double(n) * double(n) * double(n) / seconds * 1e-12, "TFLOP/s");
}

}  // namespace

std::shared_ptr<CudaDevice> open_gpu() {
  Result<std::shared_ptr<CudaDevice>> opened = CudaDevice::open(0);
  if (!opened.ok()) throw Failure(opened.status());
  (*opened)->use();
  return *opened;
}

void measure_device(Report& report) {
  const std::shared_ptr<CudaDevice> device = open_gpu();
  describe(report, *device);
  report.guarded("memory", "", [&] { measure_memory(report, *device); });
  report.guarded("gemm", "", [&] { measure_gemm(report, device); });
}

}  // namespace cohort::gpu_check
