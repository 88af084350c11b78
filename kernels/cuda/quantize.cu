// SPDX-License-Identifier: Apache-2.0
// Activations as int8 (docs/arithmetic.md section 1): a scale per row and 32 columns. Largest
// magnitude and sum are exact in any order.
#include "kernels/cuda/portable.h"
#include "kernels/cuda/product.h"

namespace cohort::cuda {
namespace {

constexpr int kLanes = 8;  // of a block of 32 columns: four each

template <class T>
GPU_FN void load_four(const T* x, float (&v)[4]) {
  if constexpr (sizeof(T) == 4) {
    const auto f = gpu::load16<float4>(x);
    v[0] = f.x;
    v[1] = f.y;
    v[2] = f.z;
    v[3] = f.w;
  } else {
    const auto w = gpu::load8<uint2>(x);
    const float2 a = gpu::unpack2<T>(w.x), b = gpu::unpack2<T>(w.y);
    v[0] = a.x;
    v[1] = a.y;
    v[2] = b.x;
    v[3] = b.y;
  }
}

// Thread i takes columns 4 i .. of all rows laid end to end: whole warps share no block of 32 with
// others. Lanes past the end repeat the last four columns and store nothing.
template <class T>
__global__ void __launch_bounds__(256)
    quantize_kernel(const T* x, std::int64_t rows, std::int64_t columns, Int8Rows out) {
  const std::int64_t thread = std::int64_t{blockIdx.x} * 256 + threadIdx.x;
  const std::int64_t all = rows * columns / 4;
  const std::int64_t at = (thread < all ? thread : all - 1) * 4;
  float v[4];
  load_four(x + at, v);
  unsigned bits = 0;  // of the largest magnitude: as integers they order like the numbers
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const unsigned b = __float_as_uint(v[i]) & 0x7fffffffu;
    bits = b > bits ? b : bits;
  }
#pragma unroll
  for (int step = 1; step < kLanes; step *= 2) {
    const unsigned other = __shfl_xor_sync(0xffffffffu, bits, step);
    bits = other > bits ? other : bits;
  }
  const float largest = __uint_as_float(bits);
  const bool finite = bits < 0x7f800000u, zero = largest < 0x1p-100f;
  const float inverse = finite && !zero ? __fdiv_rn(127.0f, largest) : 0.0f;
  std::uint32_t packed = 0;
  int sum = 0;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const int q = finite ? __float2int_rn(__fmul_rn(v[i], inverse)) : 0;
    sum += q;
    packed |= (static_cast<std::uint32_t>(q) & 0xffu) << (8 * i);
  }
#pragma unroll
  for (int step = 1; step < kLanes; step *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  if (thread >= all) return;
  gpu::store4(out.q + at, packed);
  if (thread % kLanes != 0) return;
  const float d = !finite ? __uint_as_float(0x7fc00000u) : zero ? 0.0f : __fdiv_rn(largest, 127.0f);
  const std::int64_t slot = at % columns / 32 * rows + at / columns;
  out.d[slot] = d;
  out.s[slot] = __fmul_rn(d, __int2float_rn(sum));
}

template <class T>
cudaError_t launch(const void* x, std::int64_t rows, std::int64_t columns, const Int8Rows& out,
                   cudaStream_t stream) {
  const std::int64_t blocks = (rows * columns / 4 + 255) / 256;
  return gpu::launch(quantize_kernel<T>, dim3(static_cast<unsigned>(blocks)), dim3(256), 0, stream,
                     static_cast<const T*>(x), rows, columns, out);
}

}  // namespace

cudaError_t quantize_rows(const void* x, DType type, std::int64_t rows, std::int64_t columns,
                          const Int8Rows& out, cudaStream_t stream) {
  if (type == DType::f16) return launch<__half>(x, rows, columns, out, stream);
  if (type == DType::bf16) return launch<__nv_bfloat16>(x, rows, columns, out, stream);
  return launch<float>(x, rows, columns, out, stream);
}

}  // namespace cohort::cuda
