// SPDX-License-Identifier: Apache-2.0
// Folds the partial results of tiles whose splits were items of their own, in ascending order, as a
// tile computed in one go folds them in registers. One warp per pair and 128 dimensions. Bytes: the
// partial results once; bound by their latency, hence the loads in flight.
#include "kernels/cuda/attention_launch.h"

namespace cohort::cuda {
namespace {

constexpr int kThreads = 128, kWarpDims = 128;
constexpr int kInFlight = 8;  // splits

struct Part {
  float4 acc;
  float m, l;
};

GPU_FN void fold_part(Part& to, const Part& b) {
  const Fold f = fold_of(to.m, b.m, true);
  to.acc.x = folded(to.acc.x, b.acc.x, f), to.acc.y = folded(to.acc.y, b.acc.y, f);
  to.acc.z = folded(to.acc.z, b.acc.z, f), to.acc.w = folded(to.acc.w, b.acc.w, f);
  to.l = folded(to.l, b.l, f), to.m = f.m;
}

// Splits in which the pair sees a key, dimensions dim .. dim + 3.
GPU_FN Part merged(const AttentionArgs& a, const AttentionWork& w, int in_tile, int dim) {
  const int splits = position_of(a, w, in_tile) / kSplitKeys + 1;
  Part sum = {make_float4(0, 0, 0, 0), kNoScore, 0};
  for (int first = 0; first < splits; first += kInFlight) {
    Part next[kInFlight];
#pragma unroll
    for (int i = 0; i < kInFlight; i++) {
      const float* row = partial_of(a, w, min(first + i, splits - 1), in_tile);
      const float2 scalars = gpu::load8<float2>(row + a.dim);
      next[i] = {gpu::load16<float4>(row + dim), scalars.x, scalars.y};
    }
#pragma unroll
    for (int i = 0; i < kInFlight; i++)
      if (first + i < splits) fold_part(sum, next[i]);
  }
  return sum;
}

GPU_FN void store_four(Element type, void* out, int64_t at, const float4& x) {
  if (type == Element::f32) {
    gpu::store16(static_cast<float*>(out) + at, x);
    return;
  }
  uint2 two;
  if (type == Element::f16)
    two = make_uint2(gpu::pack2<__half>(x.x, x.y), gpu::pack2<__half>(x.z, x.w));
  else
    two = make_uint2(gpu::pack2<__nv_bfloat16>(x.x, x.y), gpu::pack2<__nv_bfloat16>(x.z, x.w));
  gpu::store8(static_cast<__half*>(out) + at, two);
}

__global__ void __launch_bounds__(kThreads) merge_kernel(AttentionArgs a, Element activations) {
  const int32_t* const totals = a.batch.totals;
  const int items = totals[kThinItems] + totals[kWideItems], merges = totals[kMergeItems];
  if (blockIdx.x == 0 && threadIdx.x == 0) const_cast<int32_t*>(totals)[kNextItem] = 0;
  const int chunks = (a.dim + kWarpDims - 1) / kWarpDims;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  for (int i = static_cast<int>(blockIdx.x); i < merges; i += static_cast<int>(gridDim.x)) {
    const AttentionWork w = load_work(a.batch.items, items + i);
    for (int unit = warp; unit < w.pairs * chunks; unit += kThreads / 32) {
      const int in_tile = unit / chunks, dim = unit % chunks * kWarpDims + lane * 4;
      if (dim >= a.dim) continue;
      const Part sum = merged(a, w, in_tile, dim);
      const float inverse = 1.0f / sum.l;
      store_four(activations, a.out, offset_of(a, w, in_tile) + dim,
                 make_float4(sum.acc.x * inverse, sum.acc.y * inverse, sum.acc.z * inverse,
                             sum.acc.w * inverse));
    }
  }
}

}  // namespace

cudaError_t merge_attention(const AttentionLaunch& l, Element activations) {
  const int grid = min(l.multiprocessors * 4, l.args.batch.max_items);
  return gpu::launch(merge_kernel, dim3(static_cast<unsigned>(grid)), dim3(kThreads), 0, l.stream,
                     l.args, activations);
}

}  // namespace cohort::cuda
