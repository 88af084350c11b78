// SPDX-License-Identifier: Apache-2.0
// Rows to the experts, and their outputs back. take_rows moves 2 A per element; combine_experts
// A for each expert that is there, and 4, with 2 FLOPs each: bound by memory.
#include <algorithm>
#include <bit>

#include "kernels/cuda/elements.h"
#include "kernels/cuda/state.h"
#include "kernels/cuda/sum_stack.h"
#include "kernels/ops.h"

namespace cohort::cuda {
namespace {

constexpr unsigned kThreads = 256, kCombineThreads = 128;
constexpr int kMostPerToken = 32;
constexpr int kCopies = 4;  // of a thread, all loaded before they are stored
constexpr int kBatch = 4;   // experts whose outputs are on their way
constexpr int kQuad = 4;    // elements of a thread in combine_experts: more leave no registers

// Widths in units of W. A block: row blockIdx.x, piece blockIdx.y.
template <class W>
__global__ void __launch_bounds__(kThreads)
    take_kernel(W* out, const W* x, const int32_t* rows, int width) {
  const int32_t row = rows[blockIdx.x];
  const int first = int(blockIdx.y * kCopies * blockDim.x + threadIdx.x), step = int(blockDim.x);
  const W* from = x + int64_t(row < 0 ? 0 : row) * width;
  W* to = out + int64_t(blockIdx.x) * width;
  W v[kCopies] = {};
#pragma unroll
  for (int i = 0; i < kCopies; i++)
    if (row >= 0 && first + i * step < width) v[i] = from[first + i * step];
#pragma unroll
  for (int i = 0; i < kCopies; i++)
    if (first + i * step < width) to[first + i * step] = v[i];
}

template <class W>
cudaError_t launch_take(cudaStream_t stream, const Tensor& out, const Tensor& x,
                        const Tensor& rows) {
  const int width = int(bytes_of(out.dtype(), out.dim(1)) / int64_t(sizeof(W)));
  const unsigned threads = threads_for((width + kCopies - 1) / kCopies, kThreads);
  return gpu::launch(take_kernel<W>,
                     dim3(unsigned(out.dim(0)), divide_up(width, int64_t(threads) * kCopies)),
                     dim3(threads), 0, stream, out.as<W>(), x.as<const W>(), rows.i32(), width);
}

struct Ranges {
  static constexpr size_t kMost = 64;  // of one launch
  UnitRange of[kMost];
};

template <class A>
struct Combine {
  float* pieces;
  const A* outputs;
  const int32_t *places, *experts;
  const float* weights;
  int tokens, per_token, width;
};

// Who is there of a token's experts in a range, ascending, and how many partial sums are merged
// after each of them.
struct Present {
  int count;
  int expert[kMostPerToken], place[kMostPerToken], merges[kMostPerToken];
  int level[kMostPerToken];  // where a partial sum meets the one before it
  float weight[kMostPerToken];
};

// Two neighbours meet in the node at the level of the highest bit in which their numbers differ.
// Before one comes in, those partial sums are merged that meet below its own meeting with the last.
// By one thread; everybody's experts are in `all`.
GPU_FN void list_present(const UnitRange& range, int per_token, Present& all) {
  int count = 0, depth = 0;
  for (int j = 0; j < per_token; j++) {
    const int expert = all.expert[j];
    if (all.place[j] < 0 || expert < range.begin || expert >= range.end) continue;
    const int level = count == 0 ? 0 : 32 - __clz(expert ^ all.expert[count - 1]);
    int merges = 0;
    for (; depth - merges >= 2 && all.level[depth - merges - 1] < level; merges++) {
    }
    if (count > 0) all.merges[count - 1] = merges;
    depth -= merges;
    all.level[depth++] = level;
    all.expert[count] = expert;  // count <= j
    all.place[count] = all.place[j];
    all.weight[count++] = all.weight[j];
  }
  if (count > 0) all.merges[count - 1] = depth - 1;
  all.count = count;
}

template <int kN, class A>
GPU_FN void load_outputs(const A* p, float (&v)[kN]) {
  if constexpr (kN == 1) {
    v[0] = gpu::to_float(*p);
  } else if constexpr (sizeof(A) == 4) {
    load4_floats(p, v);
  } else {
    const auto words = gpu::load8<uint2>(p);
    const float2 low = gpu::unpack2<A>(words.x), high = gpu::unpack2<A>(words.y);
    v[0] = low.x, v[1] = low.y, v[2] = high.x, v[3] = high.y;
  }
}

template <class A, int kDepth, int kN>
GPU_FN Elements<kN> sum_present(const Combine<A>& c, const Present& all, int at) {
  Stack<kDepth, kN> stack{};
  for (int first = 0; first < all.count; first += kBatch) {
    float v[kBatch][kN];
#pragma unroll
    for (int j = 0; j < kBatch; j++)
      if (first + j < all.count)
        load_outputs<kN>(c.outputs + int64_t(all.place[first + j]) * c.width + at, v[j]);
#pragma unroll
    for (int j = 0; j < kBatch; j++) {
      if (first + j >= all.count) break;
      Elements<kN> product;
#pragma unroll
      for (int i = 0; i < kN; i++) product.v[i] = __fmul_rn(all.weight[first + j], v[j][i]);
      stack.push(product);
#pragma unroll 1
      for (int m = all.merges[first + j]; m > 0; m--) stack.merge();
    }
  }
  return stack.top[0];
}

// A block: token blockIdx.x, columns blockIdx.y, range blockIdx.z. kDepth: the most partial sums.
template <class A, int kDepth, int kN>
__global__ void __launch_bounds__(kCombineThreads) combine_kernel(Combine<A> c, Ranges ranges) {
  GPU_SHARED(Present, shared, [1]);
  Present& all = shared[0];
  const int thread = int(threadIdx.x);
  if (thread < c.per_token) {
    const int64_t pair = int64_t(blockIdx.x) * c.per_token + thread;
    all.expert[thread] = c.experts[pair];
    all.place[thread] = c.places[pair];
    all.weight[thread] = c.weights[pair];
  }
  __syncthreads();
  if (thread == 0) list_present(ranges.of[blockIdx.z], c.per_token, all);
  __syncthreads();
  const int at = int(blockIdx.y * blockDim.x + threadIdx.x) * kN;
  if (at >= c.width) return;
  Elements<kN> sum = sum_present<A, kDepth, kN>(c, all, at);
  if (all.count == 0)
#pragma unroll
    for (int i = 0; i < kN; i++) sum.v[i] = -0.0f;  // adding it changes no bit
  float* to = c.pieces + (int64_t(blockIdx.z) * c.tokens + blockIdx.x) * c.width + at;
  if constexpr (kN == 1)
    *to = sum.v[0];
  else
    store4_floats(to, sum.v);
}

// The most partial sums at a time: where they meet, from the newest on, are ever higher levels of
// the tree.
int most_sums(int per_token, std::span<const UnitRange> ranges) {
  int last = 1;
  for (const UnitRange& range : ranges) last = std::max(last, range.end - 1);
  return std::min(per_token, 1 + int(std::bit_width(unsigned(last))));
}

template <class A>
auto combine_of(int depth, bool wide) {
  COHORT_CHECK_LE(depth, 12);  // 2048 experts
  if (depth <= 4) return wide ? combine_kernel<A, 4, kQuad> : combine_kernel<A, 4, 1>;
  if (depth <= 8) return wide ? combine_kernel<A, 8, kQuad> : combine_kernel<A, 8, 1>;
  return wide ? combine_kernel<A, 12, kQuad> : combine_kernel<A, 12, 1>;
}

template <class A>
void run_combine(Stream& stream, Combine<A> c, std::span<const UnitRange> ranges) {
  const bool wide = c.width % kQuad == 0;
  const int pieces = wide ? c.width / kQuad : c.width;
  const unsigned threads = threads_for(pieces, kCombineThreads);
  const auto kernel = combine_of<A>(most_sums(c.per_token, ranges), wide);
  for (; !ranges.empty(); ranges = ranges.subspan(std::min(ranges.size(), Ranges::kMost))) {
    Ranges some{};
    const size_t n = std::min(ranges.size(), Ranges::kMost);
    std::copy_n(ranges.begin(), n, some.of);
    cuda_check(
        gpu::launch(kernel, dim3(unsigned(c.tokens), divide_up(pieces, threads), unsigned(n)),
                    dim3(threads), 0, compute(stream), c, some),
        "combine_experts");
    c.pieces += int64_t(n) * c.tokens * c.width;
  }
}

}  // namespace
}  // namespace cohort::cuda

namespace cohort::ops::cuda {
using namespace cohort::cuda;

void take_rows(Stream& stream, Tensor out, Tensor x, Tensor rows) {
  if (out.elements() == 0) return;
  const int64_t bytes = bytes_of(out.dtype(), out.dim(1));
  const auto take = bytes % 16 == 0  ? launch_take<uint4>
                    : bytes % 4 == 0 ? launch_take<uint32_t>
                                     : launch_take<uint16_t>;
  cuda_check(take(compute(stream), out, x, rows), "take_rows");
}

void combine_experts(Stream& stream, Tensor pieces, Tensor outputs, Tensor places, Tensor experts,
                     Tensor weights, std::span<const UnitRange> ranges) {
  if (pieces.elements() == 0) return;
  COHORT_CHECK_LE(experts.dim(1), int64_t(kMostPerToken));
  for_float_type(outputs.dtype(), [&]<class A>(A*) {
    run_combine<A>(stream,
                   {pieces.f32(), outputs.as<const A>(), places.i32(), experts.i32(), weights.f32(),
                    int(experts.dim(0)), int(experts.dim(1)), int(outputs.dim(1))},
                   ranges);
  });
}

}  // namespace cohort::ops::cuda
