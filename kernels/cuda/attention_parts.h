// SPDX-License-Identifier: Apache-2.0
// What the attention kernels share: their arguments, and how a partial result is folded into
// another.
//
// The arithmetic of one (row, head), in exponents of two as in docs/arithmetic.md section 5:
//
//   split  = kSplitKeys keys from a multiple of that on, as far as the row sees them:
//            m = largest score, p_j = exp2(score_j - m), l = sum p_j, a_d = sum p_j v_jd
//   result = the splits folded in ascending order, from nothing; out_d = a_d * (1 / l)
//
// A split depends on the row's query, its position and the keys alone: every kernel cuts at the
// same positions and sums a split by the same instructions in the same order. So a row has the same
// bits in any batch, whatever splits become items of their own, in thin and in wide tiles, and
// however its prompt is cut into chunks. The last two do not hold on tensor cores where a later
// position of the same chunk has values that are not finite: these may then reach earlier rows of
// that chunk.
#pragma once
#include "kernels/cuda/attention_items.h"
#include "kernels/cuda/batch.h"
#include "kernels/cuda/portable.h"

namespace cohort::cuda {

struct AttentionArgs {
  DeviceBatch batch;
  const void* q;  // A [rows, heads * dim]
  void* out;      // the same
  const std::byte* cache;
  int64_t block_bytes, chunk_bytes, plane_bytes;
  int heads, dim;
  float scale;  // log2(e) / sqrt(dim)
};

inline constexpr float kNoScore = -3.402823466e38f;

struct Fold {
  float m, u, v;  // the larger maximum; factors of both sides
};
// An invisible part holds zeros and must not even turn -0 into +0: -0 is what adds nothing.
GPU_FN Fold fold_of(float m_a, float m_b, bool visible) {
  Fold f;
  f.m = fmaxf(m_a, m_b);
  f.u = gpu::exp2_approx(m_a - f.m);
  f.v = visible ? gpu::exp2_approx(m_b - f.m) : -0.0f;
  return f;
}
GPU_FN float folded(float a, float b, const Fold& f) { return fmaf(b, f.v, __fmul_rn(a, f.u)); }

// Position of a tile's pair; -1 where there is none.
GPU_FN int position_of(const AttentionArgs& a, const AttentionWork& w, int in_tile) {
  return in_tile < w.pairs ? a.batch.start[w.entry] + (w.first_pair + in_tile) / w.heads : -1;
}
// Of the first element of a tile's pair in q and out.
GPU_FN int64_t offset_of(const AttentionArgs& a, const AttentionWork& w, int in_tile) {
  const int pair = w.first_pair + in_tile, at = pair / w.heads, head = pair - at * w.heads;
  const int64_t row = a.batch.first_row[w.entry] + at;
  return (row * a.heads + w.first_head + head) * a.dim;
}
// Keys that the last pair of a tile sees.
GPU_FN int keys_of(const AttentionArgs& a, const AttentionWork& w) {
  return a.batch.start[w.entry] + (w.first_pair + w.pairs - 1) / w.heads + 1;
}

GPU_FN AttentionWork load_work(const int32_t* items, int64_t i) {
  struct Half {
    int32_t v[4];
  };
  const Half a = gpu::load16<Half>(items + i * kWorkInts);
  const Half b = gpu::load16<Half>(items + i * kWorkInts + 4);
  return {a.v[0],
          a.v[1],
          a.v[2],
          a.v[3],
          b.v[0],
          b.v[1],
          b.v[2],
          static_cast<std::int16_t>(b.v[3] & 0xffff),
          static_cast<std::int16_t>(b.v[3] >> 16)};
}

// Gives a block of threads one item after the other, in shared memory (registers are short). An
// item stays until the next but one is taken: a block's threads are never that far apart.
class ItemQueue {
 public:
  GPU_FN ItemQueue(const AttentionArgs& a, AttentionWork* slots) : a_(a), slots_(slots) {}

  // nullptr when there are no more. A barrier of the block.
  GPU_FN const AttentionWork* take() {
    AttentionWork* slot = slots_ + (turn_ ^= 1);
    const int32_t* totals = a_.batch.totals;
    if (threadIdx.x == 0) {
      const int item = atomicAdd(const_cast<int32_t*>(totals) + kNextItem, 1);
      if (item < totals[kThinItems] + totals[kWideItems])
        *slot = load_work(a_.batch.items, item);
      else
        slot->entry = -1;
    }
    __syncthreads();
    return slot->entry >= 0 ? slot : nullptr;
  }

 private:
  const AttentionArgs& a_;
  AttentionWork* const slots_;  // [2]
  int turn_ = 0;
};

GPU_FN float* partial_of(const AttentionArgs& a, const AttentionWork& w, int split, int in_tile) {
  const int64_t row = w.partial_row + (split - w.split_begin) * w.pairs + in_tile;
  return a.batch.partials + row * (a.dim + kPartialExtra);
}

}  // namespace cohort::cuda
