// SPDX-License-Identifier: Apache-2.0
// CPU emulation of the CUDA device language, for tests only.
//
// Each CUDA thread of a block runs as a fiber; the fibers of a block share one OS
// thread, so `static thread_local` storage behaves as __shared__ memory. Barriers and
// warp collectives park the fiber until every participant has arrived.
// The real CUDA headers supply the types (dim3, float4, __nv_bfloat16, cudaStream_t).
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <source_location>
#include <tuple>
#include <type_traits>
#include <utility>

#undef __shared__
#undef __global__
#undef __device__
#undef __launch_bounds__
#define __shared__ static thread_local
#define __global__
#define __device__
#define __launch_bounds__(...)
#undef __forceinline__
#define __forceinline__ inline

// Built-in variables. Plain thread_local objects (macros would break cudaLaunchConfig_t::gridDim).
extern thread_local constinit uint3 threadIdx;
extern thread_local constinit uint3 blockIdx;
extern thread_local constinit dim3 blockDim;
extern thread_local constinit dim3 gridDim;
inline constexpr int warpSize = 32;

namespace emu {

using Site = std::source_location;

// Order in which the runnable CUDA threads of a block are resumed.
enum class Order { forward, reverse, random };

struct Options {
  Order order = Order::forward;
  std::uint64_t seed = 1;
  unsigned workers = 1;  // OS threads that blocks are spread over
};
Options& options();

struct Stats {
  std::uint64_t cuda_threads = 0, switches = 0, barriers = 0, warp_ops = 0;
  std::uint64_t ldmatrix_phases = 0, ldmatrix_conflicts = 0;  // shared-memory bank lint
};
Stats& stats();

void block_barrier(Site site, int id = 0, int expected = -1);
// All lanes of `mask` arrive with a pointer to their own operands; the last one runs fn for all.
using WarpFn = void (*)(void** args, std::uint32_t mask);
void warp_collective(std::uint32_t mask, void* arg, WarpFn fn, Site site, bool orders_memory);
unsigned lane_id();
void* dynamic_shared_base();
void* shared_array(int line,
                   std::size_t n);  // a block's static __shared__ array; starts full of NaN bytes
void cp_async(void* dst, const void* src, int bytes, bool pred);
void cp_async_commit();
void cp_async_wait(int keep);

// Runs a whole grid on the calling OS thread (or options().workers of them): body(args) per CUDA
// thread.
void run_grid(dim3 grid, dim3 block, std::size_t smem, void (*body)(const void*), const void* args);
// Puts work on an emulated stream (defined by the runtime emulation; tests without it run inline).
cudaError_t enqueue(cudaStream_t stream, const char* what, std::function<void()> work);

#if defined(__SANITIZE_THREAD__)
#define EMU_NO_TSAN __attribute__((no_sanitize("thread")))
#else
#define EMU_NO_TSAN
#endif

template <class T>
struct ShflArg {
  T value;
  T result;
  int src;
};

template <class T>
EMU_NO_TSAN void shfl_fn(void** a, std::uint32_t mask) {
  for (int l = 0; l < 32; ++l)
    if (mask >> l & 1) {
      auto* me = static_cast<ShflArg<T>*>(a[l]);
      // Reading a lane that does not take part is undefined on a GPU: give back the caller's own.
      me->result = (mask >> me->src & 1) ? static_cast<ShflArg<T>*>(a[me->src])->value : me->value;
    }
}
template <class T>
T shfl(std::uint32_t mask, T v, int src, Site s) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 8);
  ShflArg<T> a{v, v, src & 31};
  warp_collective(mask, &a, &shfl_fn<T>, s, false);
  return a.result;
}
}  // namespace emu

#define EMU_SITE emu::Site emu_site = emu::Site::current()

inline void __syncthreads(EMU_SITE) { emu::block_barrier(emu_site); }
inline void __syncwarp(unsigned mask = 0xffffffffu, EMU_SITE) {
  int dummy = 0;
  emu::warp_collective(
      mask, &dummy, [](void**, std::uint32_t) {}, emu_site, true);
}
template <class T>
T __shfl_sync(unsigned m, T v, int src, int w = 32, EMU_SITE) {
  int l = int(emu::lane_id());
  return emu::shfl(m, v, (l & ~(w - 1)) | (src & (w - 1)), emu_site);
}
template <class T>
T __shfl_xor_sync(unsigned m, T v, int x, int w = 32, EMU_SITE) {
  int l = int(emu::lane_id()), s = l ^ x;
  return emu::shfl(m, v, s > (l | (w - 1)) ? l : s, emu_site);
}
template <class T>
T __shfl_down_sync(unsigned m, T v, unsigned d, int w = 32, EMU_SITE) {
  int l = int(emu::lane_id()), s = l + int(d);
  return emu::shfl(m, v, s > (l | (w - 1)) ? l : s, emu_site);
}
template <class T>
T __shfl_up_sync(unsigned m, T v, unsigned d, int w = 32, EMU_SITE) {
  int l = int(emu::lane_id()), s = l - int(d);
  return emu::shfl(m, v, s < (l & ~(w - 1)) ? l : s, emu_site);
}
inline unsigned __ballot_sync(unsigned m, int p, EMU_SITE) {
  struct A {
    int p;
    unsigned r;
  } a{p, 0};
  emu::warp_collective(
      m, &a,
      [](void** x, std::uint32_t mask) EMU_NO_TSAN {
        unsigned r = 0;
        for (int l = 0; l < 32; ++l)
          if ((mask >> l & 1) && static_cast<A*>(x[l])->p) r |= 1u << l;
        for (int l = 0; l < 32; ++l)
          if (mask >> l & 1) static_cast<A*>(x[l])->r = r;
      },
      emu_site, false);
  return a.r;
}
inline int __any_sync(unsigned m, int p, EMU_SITE) { return __ballot_sync(m, p, emu_site) != 0; }
inline int __all_sync(unsigned m, int p, EMU_SITE) { return __ballot_sync(m, p, emu_site) == m; }

template <class T>
T atomicAdd(T* p, T v) {
  if constexpr (std::is_integral_v<T>)
    return __atomic_fetch_add(p, v, __ATOMIC_RELAXED);
  else {
    T old, next;
    __atomic_load(p, &old, __ATOMIC_RELAXED);
    do next = old + v;
    while (!__atomic_compare_exchange(p, &old, &next, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return old;
  }
}
template <class T>
T atomicMax(T* p, T v) {
  T old = __atomic_load_n(p, __ATOMIC_RELAXED);
  while (old < v &&
         !__atomic_compare_exchange_n(p, &old, v, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  return old;
}
inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

template <class T>
T __ldg(const T* p) {
  return *p;
}
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline float __expf(float x) { return std::exp(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int min(int a, int b) { return a < b ? a : b; }
inline int max(int a, int b) { return a > b ? a : b; }

namespace gpu {
template <class T>
T* dynamic_shared() {
  return static_cast<T*>(emu::dynamic_shared_base());
}

template <class... P, class... A>
cudaError_t launch(void (*k)(P...), dim3 grid, dim3 block, std::size_t smem, cudaStream_t s,
                   A&&... a) {
  using Call = std::pair<void (*)(P...), std::tuple<P...>>;
  return emu::enqueue(
      s, "kernel", [=, call = Call(k, std::tuple<P...>(static_cast<P>(a)...))]() EMU_NO_TSAN {
        emu::run_grid(
            grid, block, smem,
            [](const void* c) {
              std::apply(static_cast<const Call*>(c)->first, static_cast<const Call*>(c)->second);
            },
            &call);
      });
}

inline void cp_async16(void* d, const void* s, bool pred = true) { emu::cp_async(d, s, 16, pred); }
inline void cp_async_commit() { emu::cp_async_commit(); }
template <int N>
void cp_async_wait() {
  emu::cp_async_wait(N);
}
void ldmatrix_x4(std::uint32_t (&r)[4], const void* row, EMU_SITE);
void ldmatrix_x4_trans(std::uint32_t (&r)[4], const void* row, EMU_SITE);
void mma_m16n8k16_bf16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                       EMU_SITE);
}  // namespace gpu

// A statically sized __shared__ array.
#define GPU_SHARED(T, name, dims) \
  using name##_array = T dims;    \
  auto& name = *static_cast<name##_array*>(emu::shared_array(__LINE__, sizeof(name##_array)))
