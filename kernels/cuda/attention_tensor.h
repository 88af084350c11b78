// SPDX-License-Identifier: Apache-2.0
// Attention on tensor cores. Blocks of four warps take items until none are left:
//
//   wide tile  16 pairs a warp, each warp all keys and all dimensions: prefill
//   thin tile  up to 16 pairs in all: decode. A warp multiplies a quarter of a split's keys, the
//              scores meet in shared memory, and each warp adds values of its own dimensions.
//
// Both give a row the same bits. A tile reads its keys and values once.
#pragma once
#include "kernels/cuda/attention_launch.h"
#include "kernels/cuda/attention_mma.h"

namespace cohort::cuda {

template <class A, class C, int D, bool Thin>
class TileAttention {
  using Shape = TileShape<A, C, D>;
  static constexpr int kWarps = kAttentionThreads / 32, kOwnKeys = kSplitKeys / kWarps;
  static constexpr int kChunks = Thin ? (D / 16 + kWarps - 1) / kWarps : D / 16;
  using Scores = float[kSplitKeys / 8][4];

 public:
  GPU_FN TileAttention(const AttentionArgs& a, const AttentionWork& w, std::byte* shared)
      : a_(a),
        w_(w),
        load_(a, w, shared),
        meeting_(reinterpret_cast<float*>(shared + Shape::kTileBytes + Shape::kRawBytes)),
        first_pair_(Thin ? 0 : warp() * 16) {
    const int g = first_pair_ + (lane() >> 2);
    position_[0] = position_of(a, w, g), position_[1] = position_of(a, w, g + 8);
    query_.load(a, w, first_pair_);
  }

  GPU_FN void run() {
    const int begin = w_.split_begin, end = w_.split_end;
    load_.begin(begin);
    result_.clear();
    for (int split = begin; split < end; split++) {
      attend(split, split + 1 < end);
      if (w_.partial_row < 0) continue;
      write_partial(split);
      result_.clear();
    }
    if (w_.partial_row < 0) write();
  }

 private:
  GPU_FN void attend(int split, bool more) {
    const int first_key = split * kSplitKeys;
    // Whether any pair of the warp sees a key, and whether any pair misses one.
    const bool any =
        Thin || __any_sync(0xffffffffu, max(position_[0], position_[1]) >= first_key) != 0;
    const bool masked =
        __any_sync(0xffffffffu, min(position_[0], position_[1]) < first_key + kSplitKeys - 1) != 0;
    Scores scores = {};
    load_.keys_ready(split);
    if constexpr (Thin)
      offer_scores();
    else if (any)
      multiply_keys<A, D>(scores, query_, load_.keys());
    load_.keys_used(split, more);
    if constexpr (Thin) read_scores(scores);
    finish_scores(scores, position_, a_.scale, first_key, masked);
    const Weights<A> weights(scores);
    load_.values_ready(split, more);
    if (any)
      add_split<A, D>(result_, weights, position_, first_key, load_.values(), first_chunk(),
                      chunk_step());
    load_.values_used(split, more);
  }

  // Every warp multiplies a quarter of the keys, and later reads all scores.
  GPU_FN void offer_scores() {
    float own[kOwnKeys / 8][4] = {};
    multiply_keys<A, D>(own, query_, load_.keys() + warp() * kOwnKeys * Shape::kRow);
    float* const at = meeting_ + (lane() >> 2) * Shape::kScoreRow + 2 * (lane() & 3);
#pragma unroll
    for (int n = 0; n < kOwnKeys / 8; n++)
#pragma unroll
      for (int r = 0; r < 2; r++)
        gpu::store8(at + r * 8 * Shape::kScoreRow + warp() * kOwnKeys + 8 * n,
                    make_float2(own[n][2 * r], own[n][2 * r + 1]));
  }
  GPU_FN void read_scores(Scores& scores) {
    const float* const at = meeting_ + (lane() >> 2) * Shape::kScoreRow + 2 * (lane() & 3);
#pragma unroll
    for (int n = 0; n < kSplitKeys / 8; n++)
#pragma unroll
      for (int r = 0; r < 2; r++) {
        const float2 two = gpu::load8<float2>(at + r * 8 * Shape::kScoreRow + 8 * n);
        scores[n][2 * r] = two.x, scores[n][2 * r + 1] = two.y;
      }
  }

  GPU_FN static int first_chunk() { return Thin ? warp() : 0; }
  GPU_FN static int chunk_step() { return Thin ? kWarps : 1; }

  // f(row, chunk, j, dim) for every two dimensions that this thread holds.
  template <class F>
  GPU_FN void each_two(const F& f) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
      if (position_[r] < 0) continue;
#pragma unroll
      for (int c = 0; c < kChunks; c++)
#pragma unroll
        for (int j = 0; j < 2; j++) {
          const int dim = 16 * (first_chunk() + c * chunk_step()) + 8 * j + 2 * (lane() & 3);
          if (dim < a_.dim) f(r, c, j, dim);
        }
    }
  }

  GPU_FN void write_partial(int split) {
    const int g = first_pair_ + (lane() >> 2);
    float* const row[2] = {partial_of(a_, w_, split, g), partial_of(a_, w_, split, g + 8)};
    each_two([&](int r, int c, int j, int dim) {
      gpu::store8(row[r] + dim,
                  make_float2(result_.acc[c][j][2 * r], result_.acc[c][j][2 * r + 1]));
    });
    if ((lane() & 3) != 0 || (Thin && warp() != 0)) return;
#pragma unroll
    for (int r = 0; r < 2; r++)
      if (position_[r] >= 0) gpu::store8(row[r] + a_.dim, make_float2(result_.m[r], result_.l[r]));
  }

  GPU_FN void write() {
    A* const out = static_cast<A*>(a_.out);
    const int g = first_pair_ + (lane() >> 2);
    A* const row[2] = {out + offset_of(a_, w_, g), out + offset_of(a_, w_, g + 8)};
    const float inverse[2] = {1.0f / result_.l[0], 1.0f / result_.l[1]};
    each_two([&](int r, int c, int j, int dim) {
      const float(&x)[4] = result_.acc[c][j];
      gpu::store4(row[r] + dim, gpu::pack2<A>(x[2 * r] * inverse[r], x[2 * r + 1] * inverse[r]));
    });
  }

  const AttentionArgs& a_;
  const AttentionWork& w_;
  SplitLoader<A, C, D> load_;
  float* const meeting_;  // [16][kScoreRow]
  const int first_pair_;  // of this warp, in the tile
  int position_[2];       // of this thread's pairs
  QueryFragments<A, D> query_;
  Partial<kChunks> result_;  // so far; of one split where there are partial results
};

template <int D>
inline constexpr int kAttentionBlocks = D <= 32 ? 3 : 2;  // of a multiprocessor

template <class A, class C, int D>
__global__ void __launch_bounds__(kAttentionThreads, kAttentionBlocks<D>)
    attend_kernel(AttentionArgs a) {
  std::byte* const shared = gpu::dynamic_shared<std::byte>();
  GPU_SHARED(AttentionWork, slots, [2]);
  ItemQueue queue(a, slots);
  while (const AttentionWork* w = queue.take()) {
    if constexpr (D <= kMaxWideDim) {
      if (w->pairs > kThinPairs) {
        TileAttention<A, C, D, false>(a, *w, shared).run();
        continue;
      }
    }
    TileAttention<A, C, D, true>(a, *w, shared).run();
  }
}

template <class A, class C, int D>
cudaError_t attend_padded(const AttentionLaunch& l) {
  constexpr std::size_t kBytes = TileShape<A, C, D>::kBytes;
  if (const cudaError_t error = gpu::allow_shared(attend_kernel<A, C, D>, kBytes);
      error != cudaSuccess)
    return error;
  const int grid = min(l.multiprocessors * kAttentionBlocks<D>, l.args.batch.max_items);
  return gpu::launch(attend_kernel<A, C, D>, dim3(static_cast<unsigned>(grid)),
                     dim3(kAttentionThreads), kBytes, l.stream, l.args);
}

template <class A, class C>
cudaError_t attend_tensor(const AttentionLaunch& l) {
  if (l.args.dim <= 32) return attend_padded<A, C, 32>(l);
  if (l.args.dim <= 64) return attend_padded<A, C, 64>(l);
  if (l.args.dim <= 96) return attend_padded<A, C, 96>(l);
  if (l.args.dim <= 128) return attend_padded<A, C, 128>(l);
  return attend_padded<A, C, kMaxTensorDim>(l);
}

}  // namespace cohort::cuda
