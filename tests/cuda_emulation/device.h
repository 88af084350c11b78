// SPDX-License-Identifier: Apache-2.0
// CPU emulation of the CUDA device language, for tests only.
//
// Each CUDA thread of a block runs as a fiber; the fibers of a block share one OS thread. Barriers
// and warp collectives park the fiber until every participant has arrived. Mistakes end the kernel
// with an emu::Error from the host call that waits for it, which names the line of the kernel.
// The real CUDA headers supply the types (dim3, float4, __nv_bfloat16, cudaStream_t).
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>

#include "tests/cuda_emulation/atomics.h"
#include "tests/cuda_emulation/device_math.h"
#include "tests/cuda_emulation/mma.h"
#include "tests/cuda_emulation/warp.h"

#undef __shared__
#undef __global__
#undef __device__
#undef __launch_bounds__
#undef __forceinline__
#define __global__
#define __device__
#define __launch_bounds__(...)
#define __forceinline__ inline

// Built-in variables. Plain thread_local objects (macros would break cudaLaunchConfig_t::gridDim).
#define EMU_BUILT_IN extern thread_local constinit __attribute__((tls_model("initial-exec")))
EMU_BUILT_IN uint3 threadIdx;
EMU_BUILT_IN uint3 blockIdx;
EMU_BUILT_IN dim3 blockDim;
EMU_BUILT_IN dim3 gridDim;
#undef EMU_BUILT_IN
inline constexpr int warpSize = 32;

template <class T>
T __ldg(const T* p) {
  return *p;
}

namespace emu {
// Order in which the runnable CUDA threads of a block are resumed.
enum class Order { forward, reverse, random };

struct Options {
  Order order = Order::forward;
  std::uint64_t seed = 1;
  unsigned workers = 1;  // OS threads that blocks are spread over; 1 where races are checked
  // Lets the race checker see races between neighbouring blocks of a grid too. Takes twice the
  // fibers, of which a process may have 8128.
  bool blocks_are_unordered = false;
};
Options& options();

struct Stats {
  std::uint64_t cuda_threads = 0, switches = 0, barriers = 0, warp_ops = 0;
  // Groups of 8 lanes in which ldmatrix reads, and the cycles that bank conflicts add to them.
  std::uint64_t ldmatrix_phases = 0, ldmatrix_conflicts = 0;
};
Stats& stats();

// Aligned to 128 bytes; every byte of it is 0xff (a NaN in every format) when a block starts.
void* dynamic_shared_base();
// A block's static __shared__ array, the same for every caller with this tag; starts as above.
void* shared_array(const void* tag, std::size_t bytes);
void cp_async(void* dst, const void* src, int bytes, bool pred, Site site);
void cp_async_commit();
void cp_async_wait(int keep);

// The error that CUDA gives for such a launch.
cudaError_t check_launch(const void* kernel, dim3 grid, dim3 block, std::size_t smem);
// By cudaFuncSetAttribute: the kernel may have this much dynamic memory on the current device.
cudaError_t allow_shared(const void* kernel, std::size_t bytes);
// Runs a whole grid: body(args) per CUDA thread. Throws Error for a kernel's mistake.
void run_grid(dim3 grid, dim3 block, std::size_t smem, void (*body)(const void*), const void* args);
// Puts work on an emulated stream; defined by the emulated runtime.
cudaError_t enqueue(cudaStream_t stream, const char* what, std::function<void()> work);

#if defined(__SANITIZE_THREAD__)
#define EMU_NO_TSAN __attribute__((no_sanitize("thread")))
#else
#define EMU_NO_TSAN
#endif
}  // namespace emu

namespace gpu {
template <class T>
T* dynamic_shared() {
  return static_cast<T*>(emu::dynamic_shared_base());
}

template <class... P>
[[nodiscard]] cudaError_t allow_shared(void (*kernel)(P...), std::size_t bytes) {
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                              cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
}

template <class... P, class... A>
[[nodiscard]] cudaError_t launch(void (*kernel)(P...), dim3 grid, dim3 block, std::size_t smem,
                                 cudaStream_t stream, A&&... args) {
  static_assert((std::is_trivially_copyable_v<P> && ...));
  static_assert((std::size_t{0} + ... + sizeof(P)) <= 4096, "kernel arguments end at 4 KiB");
  const auto error = emu::check_launch(reinterpret_cast<const void*>(kernel), grid, block, smem);
  if (error != cudaSuccess) return error;
  using Call = std::pair<void (*)(P...), std::tuple<P...>>;
  const Call call(kernel, std::tuple<P...>(static_cast<P>(args)...));
  return emu::enqueue(stream, "kernel", [=]() EMU_NO_TSAN {
    emu::run_grid(
        grid, block, smem,
        [](const void* c) {
          std::apply(static_cast<const Call*>(c)->first, static_cast<const Call*>(c)->second);
        },
        &call);
  });
}

inline uint4 load_stream(const uint4* p) { return *p; }

inline void cp_async16(void* shared, const void* global, bool pred = true, EMU_SITE) {
  emu::cp_async(shared, global, 16, pred, emu_site);
}
inline void cp_async_commit() { emu::cp_async_commit(); }
template <int N>
void cp_async_wait() {
  emu::cp_async_wait(N);
}
}  // namespace gpu

// A statically sized __shared__ array. The tag tells it from others; each instance of a template
// has its own, as under nvcc.
#define GPU_SHARED(T, name, dims)       \
  using name##_array = T dims;          \
  static constexpr char name##_tag = 0; \
  auto& name = *static_cast<name##_array*>(emu::shared_array(&name##_tag, sizeof(name##_array)))
