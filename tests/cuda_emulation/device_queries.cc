// SPDX-License-Identifier: Apache-2.0
// Devices, kernels' limits, and errors.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "tests/cuda_emulation/device.h"
#include "tests/cuda_emulation/state.h"

namespace emu {
namespace {
thread_local int device = 0;

constexpr int kThreadsPerBlock = 1024, kThreadsPerMultiprocessor = 2048;
constexpr int kBlocksPerMultiprocessor = 32;
constexpr std::size_t kSharedPerBlock = 48 << 10;  // without cudaFuncSetAttribute
constexpr std::size_t kSharedReserved = 1 << 10;   // by the driver, in each block

bool exists(int i) { return i >= 0 && i < state().settings.devices; }

struct ErrorText {
  cudaError_t error;
  const char* name;
  const char* text;
};
#define EMU_ERROR(name, text) \
  { name, #name, text }
constexpr ErrorText kErrors[] = {
    EMU_ERROR(cudaSuccess, "no error"),
    EMU_ERROR(cudaErrorInvalidValue, "invalid argument"),
    EMU_ERROR(cudaErrorMemoryAllocation, "out of memory"),
    EMU_ERROR(cudaErrorInvalidPitchValue, "invalid pitch"),
    EMU_ERROR(cudaErrorInvalidDevice, "no such device"),
    EMU_ERROR(cudaErrorNoDevice, "no CUDA device found"),
    EMU_ERROR(cudaErrorInsufficientDriver, "the driver is older than the runtime"),
    EMU_ERROR(cudaErrorDevicesUnavailable, "the device cannot be used"),
    EMU_ERROR(cudaErrorInvalidResourceHandle, "invalid handle"),
    EMU_ERROR(cudaErrorIllegalState, "not possible in this state"),
    EMU_ERROR(cudaErrorNotReady, "not ready yet"),
    EMU_ERROR(cudaErrorIllegalAddress, "illegal memory access by the device"),
    EMU_ERROR(cudaErrorLaunchFailure, "the launch failed on the device"),
    EMU_ERROR(cudaErrorECCUncorrectable, "uncorrectable memory error"),
    EMU_ERROR(cudaErrorNotPermitted, "not permitted here"),
    EMU_ERROR(cudaErrorNotSupported, "not supported"),
    EMU_ERROR(cudaErrorStreamCaptureUnsupported, "not possible while a stream is captured"),
    EMU_ERROR(cudaErrorStreamCaptureInvalidated, "an earlier error ended the capture"),
    EMU_ERROR(cudaErrorStreamCaptureMerge, "two captures would become one"),
    EMU_ERROR(cudaErrorStreamCaptureUnmatched, "the capture did not begin on this stream"),
    EMU_ERROR(cudaErrorStreamCaptureUnjoined, "a forked stream did not join the capture again"),
    EMU_ERROR(cudaErrorStreamCaptureIsolation, "captured work would depend on other work"),
    EMU_ERROR(cudaErrorStreamCaptureWrongThread, "the capture began in another thread"),
    EMU_ERROR(cudaErrorCapturedEvent, "the event was recorded in a capture"),
    EMU_ERROR(cudaErrorUnknown, "unknown error"),
};
#undef EMU_ERROR

const ErrorText* find(cudaError_t error) {
  const auto* it = std::find_if(std::begin(kErrors), std::end(kErrors),
                                [&](const ErrorText& e) { return e.error == error; });
  return it == std::end(kErrors) ? nullptr : it;
}

void fill_limits(cudaDeviceProp& p) {
  const Model& m = state().settings.model;
  p.totalGlobalMem = state().settings.memory;
  p.sharedMemPerBlock = kSharedPerBlock;
  p.sharedMemPerBlockOptin = m.shared_per_block;
  p.sharedMemPerMultiprocessor = m.shared_per_multiprocessor;
  p.reservedSharedMemPerBlock = kSharedReserved;
  p.regsPerBlock = p.regsPerMultiprocessor = 65536;
  p.warpSize = 32;
  p.memPitch = 0x7fffffff;
  p.maxThreadsPerBlock = kThreadsPerBlock;
  p.maxThreadsPerMultiProcessor = kThreadsPerMultiprocessor;
  p.maxBlocksPerMultiProcessor = kBlocksPerMultiprocessor;
  const int block[3] = {1024, 1024, 64}, grid[3] = {0x7fffffff, 65535, 65535};
  std::copy(block, block + 3, p.maxThreadsDim);
  std::copy(grid, grid + 3, p.maxGridSize);
  p.major = m.major;
  p.minor = m.minor;
  p.multiProcessorCount = m.multiprocessors;
  p.l2CacheSize = 40 << 20;
  p.memoryBusWidth = 5120;
}

// False: not emulated.
bool attribute(cudaDeviceAttr which, int ordinal, int& value) {
  cudaDeviceProp p{};
  fill_limits(p);
  const std::map<cudaDeviceAttr, std::size_t> values = {
      {cudaDevAttrComputeCapabilityMajor, p.major},
      {cudaDevAttrComputeCapabilityMinor, p.minor},
      {cudaDevAttrMultiProcessorCount, p.multiProcessorCount},
      {cudaDevAttrMaxThreadsPerBlock, p.maxThreadsPerBlock},
      {cudaDevAttrMaxThreadsPerMultiProcessor, p.maxThreadsPerMultiProcessor},
      {cudaDevAttrMaxBlocksPerMultiprocessor, p.maxBlocksPerMultiProcessor},
      {cudaDevAttrMaxGridDimX, p.maxGridSize[0]},
      {cudaDevAttrMaxGridDimY, p.maxGridSize[1]},
      {cudaDevAttrMaxGridDimZ, p.maxGridSize[2]},
      {cudaDevAttrMaxSharedMemoryPerBlock, p.sharedMemPerBlock},
      {cudaDevAttrMaxSharedMemoryPerBlockOptin, p.sharedMemPerBlockOptin},
      {cudaDevAttrMaxSharedMemoryPerMultiprocessor, p.sharedMemPerMultiprocessor},
      {cudaDevAttrReservedSharedMemoryPerBlock, p.reservedSharedMemPerBlock},
      {cudaDevAttrMaxRegistersPerBlock, p.regsPerBlock},
      {cudaDevAttrWarpSize, p.warpSize},
      {cudaDevAttrL2CacheSize, p.l2CacheSize},
      {cudaDevAttrConcurrentKernels, 1},
      {cudaDevAttrAsyncEngineCount, 3},
      {cudaDevAttrUnifiedAddressing, 1},
      {cudaDevAttrMemoryPoolsSupported, 1},
      {cudaDevAttrStreamPrioritiesSupported, 1},
      {cudaDevAttrIntegrated, 0},
      {cudaDevAttrManagedMemory, 0},
      {cudaDevAttrPciDomainId, 0},
      {cudaDevAttrPciBusId, ordinal + 1},
      {cudaDevAttrPciDeviceId, 0}};
  const auto it = values.find(which);
  if (it == values.end()) return false;
  value = static_cast<int>(it->second);
  return true;
}

std::size_t dynamic_shared_limit(const void* func) {
  const auto& all = state().dynamic_shared;
  const auto it = all.find({device, func});
  return it == all.end() ? kSharedPerBlock : it->second;
}
}  // namespace

int current_device() { return device; }
}  // namespace emu

using emu::enter;
using emu::fail;
using emu::Guard;
using emu::misuse;
using emu::state;

extern "C" {
cudaError_t cudaGetDeviceCount(int* count) {
  const Guard g;
  *count = 0;
  if (const int e = emu::take_fault(__func__)) return fail(static_cast<cudaError_t>(e));
  if (state().settings.devices == 0) return fail(cudaErrorNoDevice);
  *count = state().settings.devices;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int ordinal) {
  const Guard g;
  if (const int e = emu::take_fault(__func__)) return fail(static_cast<cudaError_t>(e));
  if (!emu::exists(ordinal)) return fail(cudaErrorInvalidDevice);
  emu::device = ordinal;
  return fail(emu::lost(ordinal));
}
cudaError_t cudaGetDevice(int* ordinal) {
  const Guard g;
  if (const auto e = enter(__func__)) return e;
  *ordinal = emu::device;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* out, int ordinal) {
  const Guard g;
  if (const auto e = enter(__func__)) return e;
  if (!emu::exists(ordinal)) return fail(cudaErrorInvalidDevice);
  cudaDeviceProp p{};
  std::snprintf(p.name, sizeof p.name, "Emulated GPU %d", ordinal);
  std::snprintf(p.uuid.bytes, sizeof p.uuid.bytes, "emu-%d", ordinal);
  emu::fill_limits(p);
  p.pciBusID = ordinal + 1;
  p.unifiedAddressing = p.canMapHostMemory = p.concurrentKernels = 1;
  p.asyncEngineCount = 3;
  p.streamPrioritiesSupported = p.memoryPoolsSupported = 1;
  *out = p;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int ordinal) {
  const Guard g;
  if (const auto e = enter(__func__)) return e;
  if (!emu::exists(ordinal)) return fail(cudaErrorInvalidDevice);
  if (!emu::attribute(which, ordinal, *value))
    return misuse(cudaErrorNotSupported,
                  "device attribute " + std::to_string(which) + " is not emulated");
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int ordinal) {
  const Guard g;
  if (const auto e = enter(__func__)) return e;
  if (!emu::exists(ordinal)) return fail(cudaErrorInvalidDevice);
  if (length < 13) return fail(cudaErrorInvalidValue);
  std::snprintf(id, static_cast<std::size_t>(length), "0000:%02x:00.0",
                static_cast<unsigned>(ordinal + 1) & 0xff);
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* v) {
  const Guard g;
  if (const int e = emu::take_fault(__func__)) return fail(static_cast<cudaError_t>(e));
  *v = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* v) {
  const Guard g;
  if (const int e = emu::take_fault(__func__)) return fail(static_cast<cudaError_t>(e));
  *v = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  const Guard g;
  if (const auto e = enter(__func__)) return e;
  if (least) *least = 0;
  if (greatest) *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaGetLastError() {
  const auto e = emu::take_last_error(true);
  const Guard g;
  const auto sticky = emu::lost(emu::device);
  return sticky ? sticky : e;
}
cudaError_t cudaPeekAtLastError() {
  const auto e = emu::take_last_error(false);
  const Guard g;
  const auto sticky = emu::lost(emu::device);
  return sticky ? sticky : e;
}
const char* cudaGetErrorName(cudaError_t error) {
  const auto* e = emu::find(error);
  return e ? e->name : "unrecognized error code";
}
const char* cudaGetErrorString(cudaError_t error) {
  const auto* e = emu::find(error);
  return e ? e->text : "unrecognized error code";
}

cudaError_t cudaFuncSetAttribute(const void* func, cudaFuncAttribute which, int value) {
  const Guard g;
  if (const auto e = enter(__func__)) return e;
  if (which == cudaFuncAttributePreferredSharedMemoryCarveout) return cudaSuccess;
  if (which != cudaFuncAttributeMaxDynamicSharedMemorySize)
    return misuse(cudaErrorInvalidValue, "this attribute of kernels is not emulated");
  if (value < 0 || static_cast<std::size_t>(value) > state().settings.model.shared_per_block)
    return fail(cudaErrorInvalidValue);
  const auto bytes = static_cast<std::size_t>(value);
  if (const auto e = emu::allow_shared(func, bytes)) return fail(e);
  state().dynamic_shared[{emu::device, func}] = std::max(bytes, emu::kSharedPerBlock);
  return cudaSuccess;
}
// Registers are a guess: the host compiler knows nothing of the GPU's.
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* out, const void* func) {
  const Guard g;
  if (const auto e = enter(__func__)) return e;
  cudaFuncAttributes a{};
  a.maxThreadsPerBlock = emu::kThreadsPerBlock;
  a.numRegs = 32;
  a.maxDynamicSharedSizeBytes = static_cast<int>(emu::dynamic_shared_limit(func));
  a.binaryVersion = a.ptxVersion = state().settings.model.major * 10 + state().settings.model.minor;
  *out = a;
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* func,
                                                          int threads, std::size_t shared) {
  const Guard g;
  if (const auto e = enter(__func__)) return e;
  if (threads <= 0 || threads > emu::kThreadsPerBlock) return fail(cudaErrorInvalidValue);
  *blocks = 0;
  // Whichever way the kernel was allowed more.
  if (emu::check_launch(func, dim3(1), dim3(static_cast<unsigned>(threads)), shared))
    return cudaSuccess;
  const int warps = (threads + 31) / 32;
  const auto by_shared =
      state().settings.model.shared_per_multiprocessor / (shared + emu::kSharedReserved);
  *blocks = std::min({emu::kThreadsPerMultiprocessor / 32 / warps, emu::kBlocksPerMultiprocessor,
                      static_cast<int>(by_shared)});
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  const Guard g;
  if (const auto e = enter(__func__)) return e;
  if (const auto e = emu::unsafe(__func__)) return e;
  const int device = emu::device;
  // The device encompasses its captures, whatever their mode.
  for (auto* s : state().streams)
    if (s->device == device && s->capture) {
      s->capture->invalid = true;
      return misuse(cudaErrorStreamCaptureUnsupported, "cudaDeviceSynchronize during a capture");
    }
  emu::wait_until([=] { return emu::drained(device); });
  emu::order_after_device(device);
  return fail(emu::lost(device));
}
}
