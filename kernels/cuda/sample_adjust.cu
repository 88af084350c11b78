// SPDX-License-Identifier: Apache-2.0
// logit_bias and penalties, where they apply: the cost follows the tokens so far, not the
// vocabulary. min_tokens is part of the second survey (sample.cu).
#include "kernels/cuda/sample_device.h"

namespace cohort::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kMostBlocksOfRow = 16;

// Entries of one token are added in their order, by the thread of the first of them. The logit
// before them is kept there.
__device__ void add_biases(const SampleArgs& a, const RowInput& in, int row) {
  GPU_SHARED(int, tokens, [kMostExtrasOfRow]);
  const Extra* biases = a.extras + in.first_extra;
  const int thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < in.biases; i += kThreads) tokens[i] = biases[i].token;
  __syncthreads();
  for (int i = thread; i < in.biases; i += kThreads) {
    const int token = tokens[i];
    bool first = true;
    for (int k = 0; k < i; k++) first = first && tokens[k] != token;
    float* before = a.bias_raw + static_cast<int64_t>(row) * kMostExtrasOfRow + i;
    if (!first) {
      *before = __uint_as_float(kMarked);
      continue;
    }
    float* logit = a.logits + static_cast<int64_t>(row) * a.vocab + token;
    float x = *logit;
    *before = x;
    for (int k = i; k < in.biases; k++)
      if (tokens[k] == token) x = __fadd_rn(x, biases[k].bias);
    *logit = x;
  }
}

// Every token of a penalised row so far, to visit(its mark, its number, its position), spread over
// the blocks of the row.
template <class Visit>
GPU_FN void visit_history(const SampleArgs& a, const RowInput& in, int row, Visit visit) {
  const int32_t* history = a.table + static_cast<int64_t>(in.slot) * a.positions;
  uint32_t* marks = a.marks + static_cast<int64_t>(row) * a.vocab;
  const int step = static_cast<int>(gridDim.x) * kThreads;
  for (int i = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
       i < in.known; i += step) {
    const int token = history[i];
    if (token >= 0 && token < a.vocab) visit(marks + token, token, i);
  }
}

// All of these: grid (blocks of a row, rows).
__global__ void __launch_bounds__(kThreads) count(SampleArgs a) {
  const int row = static_cast<int>(blockIdx.y);
  const RowInput& in = a.inputs[row];
  if (in.slot < 0) return;
  if (blockIdx.x == 0 && in.biases > 0) add_biases(a, in, row);
  if (!penalises(in)) return;
  visit_history(a, in, row, [&](uint32_t* mark, int, int position) {
    atomicMax(mark, kMarked);
    if (position >= in.prompt_tokens) atomicAdd(mark, 1u);
  });
}

GPU_FN bool is_count(uint32_t mark) { return mark >= kMarked; }

GPU_FN float penalised(const RowInput& in, float x, uint32_t times) {
  x = x > 0 ? __fdiv_rn(x, in.repetition) : __fmul_rn(x, in.repetition);
  if (times == 0) return x;
  x = __fsub_rn(x, __fmul_rn(in.frequency, static_cast<float>(times)));
  return __fsub_rn(x, in.presence);
}

// Of all positions that have a token, the thread that takes the count away changes its logit and
// keeps it as it was. A NaN, which would look like a count, is not kept: the row fails anyway.
__global__ void __launch_bounds__(kThreads) penalise(SampleArgs a) {
  constexpr uint32_t kNegativeZero = 0x80000000;
  const int row = static_cast<int>(blockIdx.y);
  const RowInput& in = a.inputs[row];
  if (in.slot < 0 || !penalises(in)) return;
  visit_history(a, in, row, [&](uint32_t* mark, int token, int) {
    const uint32_t old = atomicOr(mark, 0u);
    if (!is_count(old) || atomicCAS(mark, old, kNegativeZero) != old) return;
    float* logit = a.logits + static_cast<int64_t>(row) * a.vocab + token;
    const float x = *logit;
    *logit = penalised(in, x, old - kMarked);
    if (x != 0 && x == x) atomicExch(mark, __float_as_uint(x));
  });
}

__global__ void __launch_bounds__(kThreads) unmark(SampleArgs a) {
  const int row = static_cast<int>(blockIdx.y);
  const RowInput& in = a.inputs[row];
  if (in.slot < 0 || !penalises(in)) return;
  visit_history(a, in, row, [](uint32_t* mark, int, int) { atomicExch(mark, 0u); });
}

// A captured launch must suit any length of a row.
dim3 history_grid(const SampleArgs& args, int rows) {
  const int blocks = (args.positions + 4 * kThreads - 1) / (4 * kThreads);
  return dim3(static_cast<unsigned>(blocks < kMostBlocksOfRow ? blocks : kMostBlocksOfRow),
              static_cast<unsigned>(rows));
}

}  // namespace

cudaError_t launch_count(cudaStream_t stream, const SampleArgs& args, int rows) {
  return gpu::launch(count, history_grid(args, rows), kThreads, 0, stream, args);
}

cudaError_t launch_penalise(cudaStream_t stream, const SampleArgs& args, int rows) {
  return gpu::launch(penalise, history_grid(args, rows), kThreads, 0, stream, args);
}

cudaError_t launch_unmark(cudaStream_t stream, const SampleArgs& args, int rows) {
  return gpu::launch(unmark, history_grid(args, rows), kThreads, 0, stream, args);
}

}  // namespace cohort::cuda
