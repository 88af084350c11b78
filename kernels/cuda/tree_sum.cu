// SPDX-License-Identifier: Apache-2.0
// One thread adds up 4 neighbouring elements (or 1, where rows are not aligned): it reads each row
// once, in order, onto a stack of partial sums in registers, and after each row merges as many of
// them as the tree says. That is the tree's own order whatever the grid.
#include "kernels/cuda/tree_sum.h"

#include <algorithm>
#include <bit>
#include <type_traits>

#include "base/check.h"
#include "base/device_cuda.h"
#include "kernels/cuda/portable.h"
#include "kernels/cuda/sum_stack.h"

namespace cohort::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kBatch = 8;  // rows that a thread has in flight

template <int kWide>
GPU_FN Elements<kWide> load(const float* p) {
  if constexpr (kWide == 4)
    return gpu::load16<Elements<4>>(p);
  else
    return {{*p}};
}

template <int kWide>
GPU_FN void store(float* p, const Elements<kWide>& x) {
  if constexpr (kWide == 4)
    gpu::store16(p, x);
  else
    *p = x.v[0];
}

// merges(row): how often to merge after that row. rows points at the thread's elements.
template <int kDepth, int kWide, class Merges>
GPU_FN Elements<kWide> sum_rows(const float* rows, int64_t stride, int count,
                                const Merges& merges) {
  Stack<kDepth, kWide> stack{};
  for (int first = 0; first < count; first += kBatch) {
    Elements<kWide> batch[kBatch]{};
#pragma unroll
    for (int j = 0; j < kBatch; j++)
      if (first + j < count) batch[j] = load<kWide>(rows + (first + j) * stride);
#pragma unroll
    for (int j = 0; j < kBatch; j++) {
      if (first + j >= count) break;
      stack.push(batch[j]);
      for (int m = merges(first + j); m > 0; m--) stack.merge();
    }
  }
  return stack.top[0];
}

struct PieceMerges {
  int pieces, depth;  // depth: the most partial sums at a time
  unsigned char merges[kMostPieces];
};

template <int kDepth, int kWide>
__global__ void __launch_bounds__(kThreads)
    add_pieces_kernel(PieceMerges list, const float* pieces, float* out, int64_t count) {
  const int64_t i = (int64_t(blockIdx.x) * kThreads + threadIdx.x) * kWide;
  if (i >= count) return;
  store<kWide>(out + i, sum_rows<kDepth, kWide>(pieces + i, count, list.pieces,
                                                [&](int p) { return int(list.merges[p]); }));
}

struct Ranges {
  static constexpr int kMost = 64;  // of one launch
  UnitRange piece[kMost];
};

// A binary counter: unit u is followed by one merge for each low bit of u that is set, the last one
// by a merge for each bit.
struct CounterMerges {
  int last;
  GPU_FN int operator()(int u) const {
    int merges = 0;
    for (int bits = u; bits != 0 && (u == last || (bits & 1) != 0); bits >>= 1) merges += bits & 1;
    return merges;
  }
};

// blockIdx.y: the piece.
template <int kDepth, int kWide>
__global__ void __launch_bounds__(kThreads)
    add_units_kernel(Ranges ranges, int first_unit, const float* units, float* out, int64_t count) {
  const int64_t i = (int64_t(blockIdx.x) * kThreads + threadIdx.x) * kWide;
  if (i >= count) return;
  const UnitRange piece = ranges.piece[blockIdx.y];
  const int size = piece.end - piece.begin;
  const Elements<kWide> sum = sum_rows<kDepth, kWide>(
      units + (piece.begin - first_unit) * count + i, count, size, CounterMerges{size - 1});
  // Written as a multiple of kWide: else nvcc does not see that the store is aligned, and splits
  // it.
  store<kWide>(out + (blockIdx.y * (count / kWide) + i / kWide) * kWide, sum);
}

// The order of additions over a stack: every addition of a plan takes neighbours.
PieceMerges merges_of(const TreePlan& plan) {
  PieceMerges list{};
  list.pieces = plan.total_pieces();
  COHORT_CHECK_LE(list.pieces, kMostPieces);
  int parent[kMostPieces];  // what a piece is added to, once all of its own additions are done
  int pending[kMostPieces] = {};
  for (const TreeAdd& add : plan.adds()) {
    parent[add.from] = add.into;
    pending[add.into]++;
  }
  int stack[kMostPieces], size = 0;
  for (int p = 0; p < list.pieces; p++) {
    stack[size++] = p;
    list.depth = std::max(list.depth, size);
    while (size > 1 && pending[stack[size - 1]] == 0 &&
           parent[stack[size - 1]] == stack[size - 2]) {
      pending[stack[--size - 1]]--;
      list.merges[p]++;
    }
  }
  COHORT_CHECK_LE(size, 1);
  return list;
}

// Whether rows of `count` floats can be read 4 at a time.
bool aligned(const void* a, const void* b, int64_t count) {
  return count % 4 == 0 && reinterpret_cast<uintptr_t>(a) % 16 == 0 &&
         reinterpret_cast<uintptr_t>(b) % 16 == 0;
}

unsigned blocks(int64_t count, int wide) {
  return unsigned((count + kThreads * wide - 1) / (kThreads * wide));
}

// Calls launch(depth, wide) with constants: the least depth that suffices. The deepest stack leaves
// no registers for wide elements; no model has that many units.
template <class Launch>
void choose(int depth, bool wide, const Launch& launch) {
  constexpr std::integral_constant<int, 1> kOne;
  constexpr std::integral_constant<int, 4> kFour;
  constexpr std::integral_constant<int, 8> kEight;
  constexpr std::integral_constant<int, 16> kSixteen;
  COHORT_CHECK_LE(depth, 16);  // 2^15 units
  if (depth > 8)
    launch(kSixteen, kOne);
  else if (depth > 4)
    wide ? launch(kEight, kFour) : launch(kEight, kOne);
  else
    wide ? launch(kFour, kFour) : launch(kFour, kOne);
}

}  // namespace

void add_pieces(cudaStream_t stream, const TreePlan& plan, const float* pieces, float* out,
                int64_t count) {
  if (count == 0) return;
  if (plan.total_pieces() == 0) {
    cuda_check(cudaMemsetAsync(out, 0, size_t(count) * sizeof(float), stream), "cudaMemsetAsync");
    return;
  }
  const PieceMerges list = merges_of(plan);
  choose(list.depth, aligned(pieces, out, count), [&](auto depth, auto wide) {
    cuda_check(gpu::launch(add_pieces_kernel<depth(), wide()>, dim3(blocks(count, wide())),
                           dim3(kThreads), 0, stream, list, pieces, out, count),
               "add_pieces");
  });
}

void add_units(Stream& stream, const float* units, float* out, int64_t count,
               std::span<const UnitRange> pieces) {
  if (count == 0 || pieces.empty()) return;
  const cudaStream_t compute = static_cast<CudaDevice&>(stream.device()).compute();
  const int first_unit = pieces[0].begin;
  for (; !pieces.empty(); pieces = pieces.subspan(std::min(pieces.size(), size_t(Ranges::kMost)))) {
    Ranges ranges{};
    const unsigned number = unsigned(std::min(pieces.size(), size_t(Ranges::kMost)));
    int most = 1;
    for (unsigned p = 0; p < number; p++) {
      ranges.piece[p] = pieces[p];
      most = std::max(most, pieces[p].size());
    }
    choose(std::bit_width(unsigned(most)), aligned(units, out, count), [&](auto depth, auto wide) {
      cuda_check(gpu::launch(add_units_kernel<depth(), wide()>, dim3(blocks(count, wide()), number),
                             dim3(kThreads), 0, compute, ranges, first_unit, units, out, count),
                 "add_units");
    });
    out += number * count;
  }
}

}  // namespace cohort::cuda
