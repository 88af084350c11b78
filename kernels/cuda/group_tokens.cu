// SPDX-License-Identifier: Apache-2.0
// Sorts pairs (token, j) by the number that their expert has here, stably: a counting sort. A warp
// has a run of pairs, in order; `counts` [group][run] is first how many pairs of a group a run has
// and then, added up in that order, where they begin. So the result depends on no other order than
// that of the pairs. 8 to 16 bytes per pair: bound by latency.
#include <algorithm>

#include "kernels/cuda/elements.h"
#include "kernels/cuda/state.h"
#include "kernels/ops.h"

namespace cohort::cuda {
namespace {

constexpr unsigned kThreads = 1024;
constexpr int kWarps = int(kThreads / 32);
// Up to so many pairs, one block does it all, its counts in shared memory.
constexpr int64_t kOneBlockPairs = 8192;
constexpr int kOneBlockCounts = 10 * 1024;
// Pairs of a run, where several blocks share the work.
constexpr int kRunPairs = 512;

struct Grouping {
  int32_t *offsets, *rows, *places;
  const int32_t *experts, *local;
  int pairs, per_token, groups, experts_known;
  int runs, run_pairs;

  // Of a pair: -1 for an expert that is not here, and past the last pair.
  GPU_FN int group(int pair) const {
    if (pair >= pairs) return -1;
    const int32_t e = experts[pair];
    return e >= 0 && e < experts_known ? local[e] : -1;
  }
};

GPU_FN int warp_of_block() { return int(threadIdx.x) / 32; }
GPU_FN int lane_of_warp() { return int(threadIdx.x) % 32; }

// Calls visit(pair, group, lanes of the same group) for the pairs of a run, 32 at a time. All lanes
// of the calling warp take part.
template <class Visit>
GPU_FN void for_run(const Grouping& g, int run, const Visit& visit) {
  const int begin = run * g.run_pairs, end = min(begin + g.run_pairs, g.pairs);
  for (int first = begin; first < end; first += 32) {
    const int pair = first + lane_of_warp(), group = pair < end ? g.group(pair) : -1;
    visit(pair < end ? pair : -1, group, __match_any_sync(0xffffffffu, group));
    __syncwarp();  // counts are read by other lanes next
  }
}

// counts are zero.
GPU_FN void count_run(const Grouping& g, int run, int32_t* counts) {
  for_run(g, run, [&](int, int group, unsigned same) {
    if (group >= 0 && lane_of_warp() == __ffs(int(same)) - 1)
      counts[group * g.runs + run] += __popc(same);
  });
}

GPU_FN void place_run(const Grouping& g, int run, int32_t* counts) {
  for_run(g, run, [&](int pair, int group, unsigned same) {
    const unsigned before = same & ((1u << lane_of_warp()) - 1u);
    int place = -1;
    if (group >= 0) place = counts[group * g.runs + run] + __popc(before);
    __syncwarp();
    if (group >= 0 && before == 0) counts[group * g.runs + run] = place + __popc(same);
    if (pair < 0) return;
    g.places[pair] = place;
    if (place >= 0) g.rows[place] = pair / g.per_token;
  });
}

// counts become where each (group, run) begins; offsets, and the rows past the last, are written.
// By one block.
GPU_FN void add_up(const Grouping& g, int32_t* counts) {
  GPU_SHARED(int, sums, [kWarps]);
  const int all = g.groups * g.runs;
  int done = 0;
  for (int base = 0; base < all; base += int(kThreads)) {
    const int at = base + int(threadIdx.x), value = at < all ? counts[at] : 0;
    int up_to = value;
#pragma unroll
    for (int apart = 1; apart < 32; apart *= 2) {
      const int other = __shfl_up_sync(0xffffffffu, up_to, unsigned(apart));
      if (lane_of_warp() >= apart) up_to += other;
    }
    if (lane_of_warp() == 31) sums[warp_of_block()] = up_to;
    __syncthreads();
    int before = done + up_to - value;
    for (int w = 0; w < kWarps; w++) {
      if (w < warp_of_block()) before += sums[w];
      done += sums[w];
    }
    if (at < all) {
      counts[at] = before;
      if (at % g.runs == 0) g.offsets[at / g.runs] = before;
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) g.offsets[g.groups] = done;
  for (int i = done + int(threadIdx.x); i < g.pairs; i += int(kThreads)) g.rows[i] = -1;
}

__global__ void __launch_bounds__(kThreads) group_in_one_block(Grouping g) {
  int32_t* counts = gpu::dynamic_shared<int32_t>();
  for (int i = int(threadIdx.x); i < g.groups * g.runs; i += int(kThreads)) counts[i] = 0;
  __syncthreads();
  if (warp_of_block() < g.runs) count_run(g, warp_of_block(), counts);
  __syncthreads();
  add_up(g, counts);
  __syncthreads();
  if (warp_of_block() < g.runs) place_run(g, warp_of_block(), counts);
}

// counts are zero. A warp for each run.
__global__ void __launch_bounds__(kThreads) count_runs(Grouping g, int32_t* counts) {
  const int run = int(blockIdx.x) * kWarps + warp_of_block();
  if (run < g.runs) count_run(g, run, counts);
}
__global__ void __launch_bounds__(kThreads) add_up_runs(Grouping g, int32_t* counts) {
  add_up(g, counts);
}
__global__ void __launch_bounds__(kThreads) place_runs(Grouping g, int32_t* counts) {
  const int run = int(blockIdx.x) * kWarps + warp_of_block();
  if (run < g.runs) place_run(g, run, counts);
}

void cut(Grouping& g, int runs) {
  g.runs = runs < 1 ? 1 : runs;
  g.run_pairs = int(divide_up(g.pairs, g.runs) + 31) / 32 * 32;
}

void run_in_one_block(Stream& stream, Grouping g) {
  const int most = g.groups > 0 ? kOneBlockCounts / g.groups : kWarps;
  const int wanted = int(divide_up(g.pairs, 32));
  cut(g, std::min({wanted, kWarps, most}));
  const size_t shared = size_t(g.groups) * size_t(g.runs) * sizeof(int32_t);
  cuda_check(gpu::launch(group_in_one_block, dim3(1), dim3(kThreads), shared, compute(stream), g),
             "group_tokens");
}

void run_in_passes(Stream& stream, Grouping g) {
  cut(g, int(divide_up(g.pairs, kRunPairs)));
  const size_t bytes = size_t(g.groups) * size_t(g.runs) * sizeof(int32_t);
  auto* counts = reinterpret_cast<int32_t*>(state(stream).scratch(bytes));
  cuda_check(cudaMemsetAsync(counts, 0, bytes, compute(stream)), "cudaMemsetAsync");
  const dim3 blocks(divide_up(g.runs, kWarps));
  const auto launch = [&](void (*kernel)(Grouping, int32_t*), dim3 grid) {
    cuda_check(gpu::launch(kernel, grid, dim3(kThreads), 0, compute(stream), g, counts),
               "group_tokens");
  };
  launch(count_runs, blocks);
  launch(add_up_runs, dim3(1));
  launch(place_runs, blocks);
}

}  // namespace
}  // namespace cohort::cuda

namespace cohort::ops::cuda {
using namespace cohort::cuda;

void group_tokens(Stream& stream, Tensor offsets, Tensor rows, Tensor places, Tensor experts,
                  Tensor local) {
  Grouping g{};
  g.offsets = offsets.i32(), g.rows = rows.i32(), g.places = places.i32();
  g.experts = experts.i32(), g.local = local.i32();
  g.pairs = int(experts.elements()), g.per_token = int(experts.dim(1));
  g.groups = int(offsets.dim(0)) - 1, g.experts_known = int(local.dim(0));
  const bool fits = g.groups <= kOneBlockCounts;
  if (fits && (g.pairs <= kOneBlockPairs || g.groups == 0)) return run_in_one_block(stream, g);
  run_in_passes(stream, g);
}

}  // namespace cohort::ops::cuda
