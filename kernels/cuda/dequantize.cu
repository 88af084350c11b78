// SPDX-License-Identifier: Apache-2.0
// Quantised weights as f16 or bf16, row-major: for so many rows of activations that cuBLASLt on
// plain weights is faster, the conversion included.
#include "kernels/cuda/portable.h"
#include "kernels/cuda/product.h"
#include "kernels/cuda/quant_mma.h"

namespace cohort::cuda {
namespace {

// Weight `byte` of four, in f32: exact product, rounded once by the sum with the minimum.
template <class Kind>
GPU_FN float weight(const QuantRecord<Kind>& r, std::uint32_t quants, int row, int step, int byte) {
  const auto q = static_cast<signed char>(quants >> (8 * byte));
  const float scale = r.scale[row][Kind::kHalves ? step : 0];
  const float value = __fmul_rn(scale, static_cast<float>(q));
  if constexpr (Kind::kMinimum) return __fadd_rn(value, r.minimum[row]);
  return value;
}

// A warp a record: grid (records / 8) of 256 threads.
template <class T, class Kind>
__global__ void __launch_bounds__(256)
    dequantize_kernel(QuantView w, T* out, std::int64_t n, std::int64_t records) {
  const int lane = threadIdx.x % 32;
  const std::int64_t at = std::int64_t{blockIdx.x} * 8 + threadIdx.x / 32;
  if (at >= records) return;
  QuantRecord<Kind> r;
  load_record(w, w.data + at * w.record_bytes, lane, r);
  const std::int64_t panel = at / w.blocks, block = at % w.blocks;
#pragma unroll
  for (int row = 0; row < 4; row++) {
    const std::int64_t to = panel * kQuantPanel + row * 8 + lane / 4;
    if (to >= n) continue;
#pragma unroll
    for (int step = 0; step < 2; step++) {
      const std::uint32_t q = signed_quants(r, row / 2, step, row % 2, w.offset);
      const std::uint32_t low =
          gpu::pack2<T>(weight(r, q, row, step, 0), weight(r, q, row, step, 1));
      const std::uint32_t high =
          gpu::pack2<T>(weight(r, q, row, step, 2), weight(r, q, row, step, 3));
      gpu::store8(out + (to * w.blocks + block) * 32 + step * 16 + lane % 4 * 4,
                  make_uint2(low, high));
    }
  }
}

template <class T>
cudaError_t launch(const QuantView& w, std::int64_t n, void* out, cudaStream_t stream) {
  const std::int64_t records = (n + kQuantPanel - 1) / kQuantPanel * w.blocks;
  return with_kind(w, [&](auto kind) {
    return gpu::launch(dequantize_kernel<T, decltype(kind)>,
                       dim3(static_cast<unsigned>((records + 7) / 8)), dim3(256), 0, stream, w,
                       static_cast<T*>(out), n, records);
  });
}

}  // namespace

cudaError_t dequantize(const QuantView& w, DType type, std::int64_t n, void* out,
                       cudaStream_t stream) {
  return type == DType::f16 ? launch<__half>(w, n, out, stream)
                            : launch<__nv_bfloat16>(w, n, out, stream);
}

}  // namespace cohort::cuda
