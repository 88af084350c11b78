// SPDX-License-Identifier: Apache-2.0
// The largest logit of a row, the weights' sums, and the token that is drawn.
#include "kernels/cuda/sample_candidates.h"
#include "kernels/cuda/sample_device.h"

namespace cohort::cuda {
namespace {

__device__ void store_summary(TileSummary* out, unsigned long long key, uint32_t magnitude) {
  constexpr int kWarps = kTileThreads / 32;
  GPU_SHARED(unsigned long long, keys, [kWarps]);
  GPU_SHARED(uint32_t, magnitudes, [kWarps]);
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    const unsigned long long other = __shfl_xor_sync(0xffffffffu, key, lanes);
    key = other < key ? other : key;
  }
  magnitude = __reduce_max_sync(0xffffffffu, magnitude);
  if (threadIdx.x % 32 == 0) {
    keys[threadIdx.x / 32] = key;
    magnitudes[threadIdx.x / 32] = magnitude;
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int i = 1; i < kWarps; i++) {
    key = keys[i] < key ? keys[i] : key;
    magnitude = magnitudes[i] > magnitude ? magnitudes[i] : magnitude;
  }
  gpu::store16(out, TileSummary{key, magnitude});
}

// Masks the row's end tokens that lie in this tile; some may be named twice.
__device__ void mask_tokens(const SampleArgs& a, const RowInput& in, float* logits) {
  const Extra* masked = a.extras + in.first_extra + in.biases;
  for (int i = static_cast<int>(threadIdx.x); i < in.masked; i += kTileThreads) {
    const int token = masked[i].token;
    if (token / kTile != static_cast<int>(blockIdx.x)) continue;
    atomicExch(reinterpret_cast<unsigned*>(logits + token), kInfinityBits | 0x80000000u);
  }
  __syncthreads();
}

// Grid (tiles, rows).
template <bool aligned, bool adjusted>
__global__ void __launch_bounds__(kTileThreads) survey(SampleArgs a) {
  const RowInput& in = a.inputs[blockIdx.y];
  if (in.slot < 0 || (adjusted && !adjusts(in))) return;
  float* logits = a.logits + static_cast<int64_t>(blockIdx.y) * a.vocab;
  if (adjusted && in.masked > 0) mask_tokens(a, in, logits);
  float largest = kNegativeInfinity;
  int token = 0;
  uint32_t magnitude = 0;
#pragma unroll 8
  for (int s = 0; s < 16; s++) {
    const int i = quad_begin(s);
    const Quad q = load_quad<aligned>(logits, i, a.vocab);
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const uint32_t bits = __float_as_uint(q.at[j]) & 0x7fffffffu;
      magnitude = bits > magnitude ? bits : magnitude;
      if (q.at[j] > largest) {
        largest = q.at[j];
        token = i + j;
      }
    }
  }
  TileSummary* out = (adjusted ? a.adjusted : a.raw) + int64_t(blockIdx.y) * a.tiles + blockIdx.x;
  store_summary(out, order_key(largest, token), magnitude);
}

GPU_FN const TileSummary* final_tiles(const SampleArgs& a, const RowInput& in, int row) {
  return (adjusts(in) ? a.adjusted : a.raw) + static_cast<int64_t>(row) * a.tiles;
}

// Whether it is drawn from the tree of all weights, or needs the tree's total.
GPU_FN bool needs_tree(const RowInput& in, int vocab) {
  return in.scale >= 0 && !cuts_k(in, vocab);
}

// Sums of the weights of kWeightBlock tokens each, 16 strided sums that are then added 8, 4, 2 and
// 1 apart: a thread has four of them. Grid (tiles, rows). raw: with temperature 1, for
// log-probabilities.
template <bool aligned, bool raw>
__global__ void __launch_bounds__(kTileThreads) weigh(SampleArgs a) {
  const int row = static_cast<int>(blockIdx.y);
  const RowInput& in = a.inputs[row];
  if (in.slot < 0 || (raw ? in.logprobs < 0 : !needs_tree(in, a.vocab))) return;
  const TileSummary* tiles =
      raw ? a.raw + static_cast<int64_t>(row) * a.tiles : final_tiles(a, in, row);
  const Top top = merge_tiles(tiles, a.tiles);
  if (!top.ok) return;
  const Weighing weight{top.logit, raw ? kLog2e : in.scale, raw ? 0 : in.min_p};
  const float* logits = a.logits + static_cast<int64_t>(row) * a.vocab;
  float sums[4] = {};
#pragma unroll 8
  for (int s = 0; s < 16; s++) {
    const int i = quad_begin(s);
    const Quad q = load_quad<aligned>(logits, i, a.vocab);
#pragma unroll
    for (int j = 0; j < 4; j++)
      if (i + j < a.vocab) sums[j] = __fadd_rn(sums[j], weight(q.at[j]));
  }
  for (int threads = 2; threads > 0; threads /= 2)
#pragma unroll
    for (int j = 0; j < 4; j++)
      sums[j] = __fadd_rn(sums[j], __shfl_xor_sync(0xffffffffu, sums[j], threads));
  const float sum = __fadd_rn(__fadd_rn(sums[0], sums[2]), __fadd_rn(sums[1], sums[3]));
  const int block = quad_begin(0) / kWeightBlock;
  if (threadIdx.x % 4 == 0 && block < a.blocks)
    a.block_sums[static_cast<int64_t>(row) * a.blocks + block] = sum;
}

// Walks down the tree to the block at which the running sum passes *target; subtracts what is left
// of it.
GPU_FN int find_block(const double* last, int blocks, double* target) {
  int levels = 0;
  while ((blocks - 1) >> levels > 0) levels++;
  const double* level = last;
  int node = 0;
  for (int l = levels - 1; l >= 0; l--) {
    const int count = (blocks + (1 << l) - 1) >> l;
    level -= count;
    node *= 2;
    const bool right = node + 1 < count && *target >= level[node] && level[node + 1] > 0;
    if (right) *target = __dsub_rn(*target, level[node++]);
  }
  return node;
}

struct DrawState {
  double target, total;
  int block, token;
  float weights[kWeightBlock];
};

// In order of tokens. All threads of the block call it; the result is thread 0's.
__device__ int draw_from_tree(const SampleArgs& a, const RowInput& in, const Weighing& weight,
                              const float* logits, const double* last) {
  GPU_SHARED(DrawState, state, [1]);
  DrawState& s = state[0];
  if (threadIdx.x == 0) {
    double target = __dmul_rn(in.u, *last);
    s.block = find_block(last, a.blocks, &target);
    s.target = target;
  }
  __syncthreads();
  const int begin = s.block * kWeightBlock;
  const int count = a.vocab - begin < kWeightBlock ? a.vocab - begin : kWeightBlock;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x))
    s.weights[i] = weight(logits[begin + i]);
  __syncthreads();
  if (threadIdx.x != 0) return 0;
  double target = s.target;
  int token = begin;  // rounding may leave the target at the end: then the last that weighs
#pragma unroll 4
  for (int i = 0; i < count; i++) {
    const double w = s.weights[i];
    if (w <= 0) continue;
    token = begin + i;
    if (target < w) break;
    target = __dsub_rn(target, w);
  }
  return token;
}

// What thread 0 adds up in order of likelihood: the total of the first top_k, then as many as reach
// top_p of the total, then as many as reach u of those.
struct Cut {
  enum Phase { totalling, cutting, walking };
  double sum, goal, u;
  int count, token;

  GPU_FN bool add(Phase phase, unsigned long long key, float w) {
    if (phase == walking && (count-- <= 0 || !(w > 0))) return false;
    sum = __dadd_rn(sum, w);
    if (phase == totalling) return true;
    if (phase == cutting) {
      count++;
      return sum < goal;
    }
    token = token_of(key);
    return !(goal < sum);
  }
  // Sets the goal of the phase from the sum of what was before it.
  GPU_FN void begin(Phase phase, double top_p) {
    if (phase != totalling) goal = __dmul_rn(phase == cutting ? top_p : u, sum);
    if (phase == cutting) count = 0;
    sum = 0;
  }
};

// In order of likelihood. All threads of the block call it; the result is thread 0's.
__device__ int draw_from_top(const SampleArgs& a, const RowInput& in, const RowView& view,
                             const Top& top, double tree_total) {
  GPU_SHARED(Candidates, candidates, [1]);
  GPU_SHARED(Cut, cuts, [1]);
  Cut& cut = cuts[0];
  const bool cut_k = cuts_k(in, a.vocab);
  const int limit = cut_k ? in.top_k : a.vocab;
  if (threadIdx.x == 0) {
    candidates[0].loaded = false;
    cut.sum = tree_total;
    cut.u = in.u;
    cut.count = limit;
    cut.token = top.token;
  }
  __syncthreads();
#pragma unroll 1
  for (int p = cut_k ? Cut::totalling : Cut::cutting; p <= Cut::walking; p++) {
    const auto phase = static_cast<Cut::Phase>(p);
    if (phase == Cut::cutting && in.top_p >= 1) continue;
    if (threadIdx.x == 0) cut.begin(phase, in.top_p);
    visit_in_order(candidates[0], view, limit,
                   [&](unsigned long long key, float w) { return cut.add(phase, key, w); });
  }
  return cut.token;
}

// The logit before adjustments, to *found. All threads of the block call it; one may write.
GPU_FN void find_raw(const SampleArgs& a, const RowInput& in, int row, int token, float* found) {
  if (threadIdx.x == 0) {
    const int64_t at = static_cast<int64_t>(row) * a.vocab + token;
    const uint32_t mark = adjusts(in) ? a.marks[at] : 0;
    *found = mark != 0 ? __uint_as_float(mark) : a.logits[at];
  }
  __syncthreads();
  const float* before = a.bias_raw + static_cast<int64_t>(row) * kMostExtrasOfRow;
  for (int i = static_cast<int>(threadIdx.x); i < in.biases; i += static_cast<int>(blockDim.x))
    if (a.extras[in.first_extra + i].token == token && before[i] == before[i]) *found = before[i];
  __syncthreads();
}

struct PickState {
  Top raw, top;
  int token;
  float raw_logit;
};

// Writes the row's result. All threads of the block call it; token: of thread 0.
__device__ void report(const SampleArgs& a, const RowInput& in, PickState& s, int token) {
  const int row = static_cast<int>(blockIdx.x);
  SampledRow& out = a.out[row];
  if (threadIdx.x == 0) {
    s.token = token;
    out.token = token;
    out.finite = 1;
    out.logprob = 0;
    out.top_count = in.logprobs > 0 ? in.logprobs : 0;
    a.table[static_cast<int64_t>(in.slot) * a.positions + in.known] = token;
  }
  if (in.logprobs < 0) return;
  __syncthreads();
  find_raw(a, in, row, s.token, &s.raw_logit);
  if (threadIdx.x != 0) return;
  const double below = __fsub_rn(s.raw_logit, s.raw.logit);
  out.logprob = static_cast<float>(__dsub_rn(below, a.log_sums[row]));
}

__device__ void report_not_finite(const SampleArgs& a, const RowInput& in) {
  SampledRow& out = a.out[blockIdx.x];
  out.token = 0;
  out.finite = 0;
  out.logprob = 0;
  out.top_count = 0;
  a.table[static_cast<int64_t>(in.slot) * a.positions + in.known] = 0;
}

// All threads of the block call it; the result is thread 0's.
template <Pick mode>
__device__ int draw(const SampleArgs& a, const RowInput& in, const Top& top) {
  const int64_t row = blockIdx.x;
  const float* logits = a.logits + row * a.vocab;
  const Weighing weight{top.logit, in.scale, in.min_p};
  const double* last = nullptr;
  if (needs_tree(in, a.vocab))
    last = add_blocks(gpu::dynamic_shared<double>(), a.block_sums + row * a.blocks, a.blocks);
  if constexpr (mode == Pick::truncate) {
    if (cuts_k(in, a.vocab) || in.top_p < 1) {
      const RowView view{logits, a.vocab, weight, in.lowest};
      return draw_from_top(a, in, view, top, last == nullptr ? 0 : *last);
    }
  }
  return draw_from_tree(a, in, weight, logits, last);
}

// A block per row.
template <Pick mode>
__global__ void __launch_bounds__(mode == Pick::truncate ? kRowThreads : 256, 2)
    pick(SampleArgs a) {
  GPU_SHARED(PickState, state, [1]);
  PickState& s = state[0];
  const int row = static_cast<int>(blockIdx.x);
  const RowInput& in = a.inputs[row];
  if (in.slot < 0) return;
  if (threadIdx.x < 32) {
    const Top raw = merge_tiles(a.raw + static_cast<int64_t>(row) * a.tiles, a.tiles);
    const Top top = adjusts(in) ? merge_tiles(final_tiles(a, in, row), a.tiles) : raw;
    if (threadIdx.x == 0) {
      s.raw = raw;
      s.top = top;
    }
  }
  __syncthreads();
  if (!s.raw.ok || !s.top.ok) {
    if (threadIdx.x == 0) report_not_finite(a, in);
    return;
  }
  int token = s.top.token;
  if constexpr (mode != Pick::greedy) {
    if (in.scale >= 0) token = draw<mode>(a, in, s.top);
  }
  report(a, in, s, token);
}

dim3 tile_grid(const SampleArgs& args, int rows) {
  return dim3(static_cast<unsigned>(args.tiles), static_cast<unsigned>(rows));
}

}  // namespace

cudaError_t launch_survey(cudaStream_t stream, const SampleArgs& args, int rows) {
  auto* kernel = args.vocab % 4 == 0 ? survey<true, false> : survey<false, false>;
  return gpu::launch(kernel, tile_grid(args, rows), kTileThreads, 0, stream, args);
}

cudaError_t launch_adjusted_survey(cudaStream_t stream, const SampleArgs& args, int rows) {
  auto* kernel = args.vocab % 4 == 0 ? survey<true, true> : survey<false, true>;
  return gpu::launch(kernel, tile_grid(args, rows), kTileThreads, 0, stream, args);
}

cudaError_t launch_weights(cudaStream_t stream, const SampleArgs& args, int rows) {
  auto* kernel = args.vocab % 4 == 0 ? weigh<true, false> : weigh<false, false>;
  return gpu::launch(kernel, tile_grid(args, rows), kTileThreads, 0, stream, args);
}

cudaError_t launch_raw_weights(cudaStream_t stream, const SampleArgs& args, int rows) {
  auto* kernel = args.vocab % 4 == 0 ? weigh<true, true> : weigh<false, true>;
  return gpu::launch(kernel, tile_grid(args, rows), kTileThreads, 0, stream, args);
}

cudaError_t launch_pick(cudaStream_t stream, const SampleArgs& args, int rows, Pick mode) {
  const dim3 grid(static_cast<unsigned>(rows));
  if (mode == Pick::greedy) return gpu::launch(pick<Pick::greedy>, grid, 32, 0, stream, args);
  const size_t tree = static_cast<size_t>(tree_nodes(args.blocks)) * sizeof(double);
  if (mode == Pick::draw) return gpu::launch(pick<Pick::draw>, grid, 256, tree, stream, args);
  return gpu::launch(pick<Pick::truncate>, grid, row_threads(args.vocab), tree, stream, args);
}

}  // namespace cohort::cuda
