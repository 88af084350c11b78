// SPDX-License-Identifier: Apache-2.0
// The table of tokens: a few bytes per token of a step, bound by launches.
#include "kernels/cuda/tokens.h"

#include "kernels/cuda/elements.h"
#include "kernels/cuda/state.h"

namespace cohort::cuda {
namespace {

constexpr unsigned kThreads = 256;

struct Table {
  int32_t* data;
  int64_t positions;
  GPU_FN int32_t* at(int32_t slot, int32_t position) const {
    return data + slot * positions + position;
  }
};
Table view(const TokenTable& table) { return {table.data(), table.positions()}; }

// A thread has one row, here and below.
__global__ void __launch_bounds__(kThreads)
    look_up_ids(Table table, int32_t* ids, const int32_t* slots, const int32_t* positions,
                int rows) {
  const int r = int(blockIdx.x * blockDim.x + threadIdx.x);
  if (r >= rows) return;
  const int32_t position = positions[r];
  ids[r] = position < 0 ? 0 : *table.at(slots[r], position);
}

__global__ void __launch_bounds__(kThreads)
    store_each(Table table, const int32_t* tokens, const int32_t* slots, const int32_t* positions,
               int n) {
  const int i = int(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= n || slots[i] < 0) return;
  *table.at(slots[i], positions[i]) = tokens[i];
}

void check_list(const Tensor& t, int64_t n) {
  COHORT_CHECK(t.dtype() == DType::i32 && t.rank() == 1);
  COHORT_CHECK_EQ(t.dim(0), n);
}

}  // namespace

TokenTable::TokenTable(Stream& stream, int32_t slots, int32_t positions)
    : slots_(slots),
      positions_(positions),
      memory_(stream.device().allocate(size_t(slots) * size_t(positions) * sizeof(int32_t))) {}

void look_up_tokens(Stream& stream, const TokenTable& table, Tensor ids, Tensor slots,
                    Tensor positions) {
  const int64_t rows = ids.elements();
  check_list(ids, rows);
  check_list(slots, rows);
  check_list(positions, rows);
  if (rows == 0) return;
  cuda_check(gpu::launch(look_up_ids, dim3(divide_up(rows, kThreads)),
                         dim3(threads_for(rows, kThreads)), 0, compute(stream), view(table),
                         ids.i32(), slots.i32(), positions.i32(), int(rows)),
             "look_up_tokens");
}

void store_tokens(Stream& stream, const TokenTable& table, Tensor tokens, Tensor slots,
                  Tensor positions) {
  const int64_t n = tokens.elements();
  check_list(tokens, n);
  check_list(slots, n);
  check_list(positions, n);
  if (n == 0) return;
  cuda_check(
      gpu::launch(store_each, dim3(divide_up(n, kThreads)), dim3(threads_for(n, kThreads)), 0,
                  compute(stream), view(table), tokens.i32(), slots.i32(), positions.i32(), int(n)),
      "store_tokens");
}

}  // namespace cohort::cuda
