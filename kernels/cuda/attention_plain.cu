// SPDX-License-Identifier: Apache-2.0
// Attention in f32 for every type and head: small models, tests, and f32 activations. One pair
// after the other; threads are keys for scores and dimensions for values, so a row meets no key
// that it must not see.
#include "kernels/cuda/attention_launch.h"

namespace cohort::cuda {
namespace {

constexpr int kThreads = kSplitKeys;
constexpr int kBlocks = 8;                           // of a multiprocessor
constexpr int kOwnDims = kMaxGpuHeadDim / kThreads;  // of a thread, kThreads apart

GPU_FN float load_element(Element type, const void* p, int64_t i) {
  if (type == Element::f16) return gpu::to_float(static_cast<const __half*>(p)[i]);
  if (type == Element::bf16) return gpu::to_float(static_cast<const __nv_bfloat16*>(p)[i]);
  return static_cast<const float*>(p)[i];
}
GPU_FN void store_element(Element type, void* p, int64_t i, float x) {
  if (type == Element::f16)
    static_cast<__half*>(p)[i] = gpu::from_float<__half>(x);
  else if (type == Element::bf16)
    static_cast<__nv_bfloat16*>(p)[i] = gpu::from_float<__nv_bfloat16>(x);
  else
    static_cast<float*>(p)[i] = x;
}

struct Shared {
  float query[kMaxGpuHeadDim], weight[kSplitKeys], tree[kSplitKeys];
};

// The same for all threads: all values meet in a tree, whose shape is always the same.
template <class F>
GPU_FN float reduce(float* tree, float x, const F& f) {
  const int t = static_cast<int>(threadIdx.x);
  __syncthreads();
  tree[t] = x;
  for (int width = kThreads / 2; width > 0; width /= 2) {
    __syncthreads();
    if (t < width) tree[t] = f(tree[t], tree[t + width]);
  }
  __syncthreads();
  return tree[0];
}

template <class C>
class PairAttention {
 public:
  GPU_FN PairAttention(const AttentionArgs& a, const AttentionWork& w, int in_tile, Shared& shared)
      : a_(a),
        w_(w),
        shared_(shared),
        blocks_(a.batch.blocks + a.batch.first_block[w.entry]),
        head_(a.cache + w.kv_head * a.chunk_bytes),
        in_tile_(in_tile),
        position_(position_of(a, w, in_tile)) {}

  GPU_FN void run(Element activations) {
    const int64_t offset = offset_of(a_, w_, in_tile_);
    __syncthreads();
    for (int d = thread(); d < a_.dim; d += kThreads)
      shared_.query[d] = __fmul_rn(load_element(activations, a_.q, offset + d), a_.scale);
    __syncthreads();
    clear();
    for (int split = w_.split_begin; split < w_.split_end; split++) {
      if (split * kSplitKeys > position_) break;
      fold_split(split);
      if (w_.partial_row < 0) continue;
      write_partial(split);
      clear();
    }
    if (w_.partial_row >= 0) return;
    const float inverse = 1.0f / l_;
#pragma unroll
    for (int i = 0, d = thread(); i < kOwnDims && d < a_.dim; i++, d += kThreads)
      store_element(activations, a_.out, offset + d, acc_[i] * inverse);
  }

 private:
  GPU_FN static int thread() { return static_cast<int>(threadIdx.x); }
  GPU_FN void clear() {
    m_ = kNoScore, l_ = 0;
    for (float& x : acc_) x = 0;
  }
  GPU_FN const C* row(int key, int64_t plane) const {
    const std::byte* block = head_ + blocks_[key / kBlockTokens] * a_.block_bytes + plane;
    return reinterpret_cast<const C*>(block) + key % kBlockTokens * a_.dim;
  }

  GPU_FN void fold_split(int split) {
    const int first = split * kSplitKeys, keys = min(kSplitKeys, position_ + 1 - first);
    const bool mine = thread() < keys;
    float score = 0;
    if (mine) {
      const C* k = row(first + thread(), 0);
      for (int d = 0; d < a_.dim; d++) score = fmaf(shared_.query[d], gpu::to_float(k[d]), score);
    }
    // A NaN gives way to numbers here and comes back as a weight.
    const float m = reduce(shared_.tree, mine ? fmaxf(score, kNoScore) : kNoScore,
                           [](float a, float b) { return fmaxf(a, b); });
    const float weight = mine ? gpu::exp2_approx(score - m) : 0.0f;
    shared_.weight[thread()] = weight;
    const float l = reduce(shared_.tree, weight, [](float a, float b) { return a + b; });
    const Fold f = fold_of(m_, m, true);
#pragma unroll
    for (int i = 0, d = thread(); i < kOwnDims && d < a_.dim; i++, d += kThreads) {
      float sum = 0;
      for (int j = 0; j < keys; j++)
        sum = fmaf(shared_.weight[j], gpu::to_float(row(first + j, a_.plane_bytes)[d]), sum);
      acc_[i] = folded(acc_[i], sum, f);
    }
    l_ = folded(l_, l, f), m_ = f.m;
  }

  GPU_FN void write_partial(int split) {
    float* const to = partial_of(a_, w_, split, in_tile_);
#pragma unroll
    for (int i = 0, d = thread(); i < kOwnDims && d < a_.dim; i++, d += kThreads) to[d] = acc_[i];
    if (thread() == 0) to[a_.dim] = m_, to[a_.dim + 1] = l_;
  }

  const AttentionArgs& a_;
  const AttentionWork& w_;
  Shared& shared_;
  const int32_t* const blocks_;
  const std::byte* const head_;
  const int in_tile_, position_;
  float m_, l_, acc_[kOwnDims];
};

template <class C>
__global__ void __launch_bounds__(kThreads, kBlocks)
    plain_kernel(AttentionArgs a, Element activations) {
  GPU_SHARED(AttentionWork, slots, [2]);
  GPU_SHARED(Shared, shared, [1]);
  ItemQueue queue(a, slots);
  while (const AttentionWork* w = queue.take())
    for (int i = 0; i < w->pairs; i++) PairAttention<C>(a, *w, i, shared[0]).run(activations);
}

template <class C>
cudaError_t attend(const AttentionLaunch& l, Element activations) {
  const int grid = min(l.multiprocessors * kBlocks, l.args.batch.max_items);
  return gpu::launch(plain_kernel<C>, dim3(static_cast<unsigned>(grid)), dim3(kThreads), 0,
                     l.stream, l.args, activations);
}

}  // namespace

cudaError_t attend_plain(const AttentionLaunch& launch, Element activations, Element cache) {
  switch (cache) {
    case Element::f32:
      return attend<float>(launch, activations);
    case Element::f16:
      return attend<__half>(launch, activations);
    case Element::bf16:
      return attend<__nv_bfloat16>(launch, activations);
    case Element::f8:
      return attend<__nv_fp8_e4m3>(launch, activations);
  }
  return cudaErrorInvalidValue;
}

}  // namespace cohort::cuda
