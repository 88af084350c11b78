// SPDX-License-Identifier: Apache-2.0
#include "base/device_cuda.h"

#include <cstdio>
#include <cstring>

#include "base/check.h"
#include "base/log.h"
#include "base/open_device.h"

namespace cohort {
namespace {

constexpr int kLeastMajor = 8;  // compute capability: bf16 and asynchronous copies begin there

Code code_of(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
      return Code::kResourceExhausted;
    case cudaErrorInsufficientDriver:
    case cudaErrorNoDevice:
    case cudaErrorInvalidDevice:
      return Code::kFailedPrecondition;
    case cudaErrorDevicesUnavailable:
      return Code::kUnavailable;
    default:
      return Code::kInternal;
  }
}

// CUDA's 13020 is 13.2.
std::string version(int number) { return concat(number / 1000, ".", number % 1000 / 10); }

std::string versions() {
  int driver = 0, runtime = 0;
  cuda_check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  cuda_check(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
  return concat("driver ", driver == 0 ? "0" : version(driver), ", runtime ", version(runtime));
}

// Why cudaGetDeviceCount failed.
Status no_devices(cudaError_t error) {
  int driver = 0;
  cuda_check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  if (error == cudaErrorInsufficientDriver && driver == 0)
    return failed_precondition("no CUDA driver was found (" + versions() +
                               "): install NVIDIA's driver, or choose the CPU");
  if (error == cudaErrorInsufficientDriver)
    return failed_precondition("the CUDA driver is older than this build (" + versions() +
                               "): install a newer driver, or choose the CPU");
  if (error == cudaErrorNoDevice)
    return failed_precondition("this host has no GPU that CUDA can see (" + versions() +
                               "): look at CUDA_VISIBLE_DEVICES, or choose the CPU");
  return cuda_status(error, "cudaGetDeviceCount");
}

std::string in_units(size_t bytes) {
  char text[32];
  const double mib = double(bytes) / (1 << 20);
  if (mib >= 100)
    std::snprintf(text, sizeof text, "%.1f GiB", mib / 1024);
  else if (mib >= 0.1)
    std::snprintf(text, sizeof text, "%.1f MiB", mib);
  else
    std::snprintf(text, sizeof text, "%zu bytes", bytes);
  return text;
}

bool capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  cuda_check(cudaStreamIsCapturing(stream, &capture), "cudaStreamIsCapturing");
  return capture != cudaStreamCaptureStatusNone;
}

}  // namespace

Status cuda_status(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return {};
  std::string text = concat(call, ": ", cudaGetErrorName(error), ", ", cudaGetErrorString(error));
  int device = -1;
  if (cudaGetDevice(&device) == cudaSuccess) text += concat(" (device ", device, ")");
  // The error is told here; later checks of the thread's last error must not tell it again. What is
  // wrong with the device itself comes back with every call.
  (void)cudaGetLastError();
  return Status(code_of(error), std::move(text));
}

void cuda_check(cudaError_t error, const char* call) {
  if (error != cudaSuccess) throw Failure(cuda_status(error, call));
}

void cuda_release(cudaError_t error, const char* call) {
  if (error != cudaSuccess) log_debug(cuda_status(error, call).message());
}

Result<std::shared_ptr<CudaDevice>> CudaDevice::open(int ordinal) {
  std::shared_ptr<CudaDevice> device(new CudaDevice());
  try {
    COHORT_RETURN_IF_ERROR(device->set_up(ordinal));
  } catch (const Failure& failure) {
    return failure.status();
  }
  return device;
}

Status CudaDevice::set_up(int ordinal) {
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) {
    Status why = no_devices(error);
    (void)cudaGetLastError();
    return why;
  }
  if (ordinal < 0 || ordinal >= count)
    return failed_precondition(concat("this host has ", count, count == 1 ? " GPU" : " GPUs",
                                      "; device ", ordinal, " does not exist"));
  ordinal_ = ordinal;
  use();
  cudaDeviceProp properties{};
  cuda_check(cudaGetDeviceProperties(&properties, ordinal), "cudaGetDeviceProperties");
  name_ = concat(properties.name, ", device ", ordinal);
  multiprocessors_ = properties.multiProcessorCount;
  if (properties.major < kLeastMajor)
    return failed_precondition(concat(name_, " has compute capability ", properties.major, ".",
                                      properties.minor, "; ", kLeastMajor, ".0 is needed"));
  int least = 0, greatest = 0;  // numerically lower is more urgent
  cuda_check(cudaDeviceGetStreamPriorityRange(&least, &greatest),
             "cudaDeviceGetStreamPriorityRange");
  const auto make = [](cudaStream_t& stream, int priority) {
    cuda_check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, priority),
               "cudaStreamCreateWithPriority");
  };
  make(compute_, greatest);
  make(comm_, greatest);
  make(pipe_, least);
  make(tokens_, least);
  make(copy_, least);
  cuda_check(cudaEventCreateWithFlags(&edge_, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  return {};
}

CudaDevice::~CudaDevice() {
  if (edge_ != nullptr) cuda_release(cudaEventDestroy(edge_), "cudaEventDestroy");
  for (const cudaStream_t stream : {compute_, comm_, pipe_, tokens_, copy_})
    if (stream != nullptr) cuda_release(cudaStreamDestroy(stream), "cudaStreamDestroy");
}

DeviceMemory CudaDevice::memory() const {
  use();
  size_t free = 0, total = 0;
  cuda_check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return {.free = int64_t(free), .total = int64_t(total)};
}

Buffer CudaDevice::allocate(size_t bytes) {
  if (bytes == 0) return {};
  COHORT_CHECK_MSG(!capturing(compute_), "memory is taken before a capture, not in it");
  use();
  void* data = nullptr;
  const cudaError_t error = cudaMalloc(&data, bytes);
  if (error == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    const DeviceMemory left = memory();
    throw OutOfMemory(resource_exhausted(
        concat("device memory: ", in_units(bytes), " asked for, ", in_units(size_t(left.free)),
               " of ", in_units(size_t(left.total)), " free on ", name_,
               "; use more ranks, a smaller --kv-memory or a smaller --max-batch")));
  }
  cuda_check(error, "cudaMalloc");
  Buffer buffer(data, bytes, [](void* p, size_t) { cuda_release(cudaFree(p), "cudaFree"); });
  cuda_check(cudaMemsetAsync(data, 0, bytes, compute_), "cudaMemsetAsync");
  cuda_check(cudaStreamSynchronize(compute_), "cudaStreamSynchronize");
  return buffer;
}

Buffer CudaDevice::allocate_pinned(size_t bytes) {
  if (bytes == 0) return {};
  use();
  void* data = nullptr;
  const cudaError_t error = cudaMallocHost(&data, bytes);
  if (error == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    throw OutOfMemory(resource_exhausted(
        concat("page-locked host memory: ", in_units(bytes),
               " asked for, more than the host gives; look at its limit of locked memory "
               "(ulimit -l)")));
  }
  cuda_check(error, "cudaMallocHost");
  std::memset(data, 0, bytes);
  return Buffer(data, bytes,
                [](void* p, size_t) { cuda_release(cudaFreeHost(p), "cudaFreeHost"); });
}

void CudaDevice::upload(void* to, const void* from, size_t bytes) {
  copy_now(to, from, bytes, cudaMemcpyHostToDevice);
}

void CudaDevice::download(void* to, const void* from, size_t bytes) {
  copy_now(to, from, bytes, cudaMemcpyDeviceToHost);
}

void CudaDevice::copy_now(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  use();
  for (const cudaStream_t stream : {comm_, pipe_, tokens_, copy_}) order(stream, compute_);
  if (bytes > 0) cuda_check(cudaMemcpyAsync(to, from, bytes, kind, compute_), "cudaMemcpyAsync");
  cuda_check(cudaStreamSynchronize(compute_), "cudaStreamSynchronize");
}

void CudaDevice::use() const { cuda_check(cudaSetDevice(ordinal_), "cudaSetDevice"); }

void CudaDevice::order(cudaStream_t from, cudaStream_t to) {
  if (from == to) return;
  cuda_check(cudaEventRecord(edge_, from), "cudaEventRecord");
  cuda_check(cudaStreamWaitEvent(to, edge_, 0), "cudaStreamWaitEvent");
}

Result<std::shared_ptr<Device>> open_cuda_device(int ordinal) {
  COHORT_ASSIGN_OR_RETURN(std::shared_ptr<Device> device, CudaDevice::open(ordinal));
  return device;
}

int count_cuda_devices() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  (void)cudaGetLastError();
  return 0;
}

}  // namespace cohort
