// SPDX-License-Identifier: Apache-2.0
// Log-probabilities of the raw logits: the sum of all weights and the most likely tokens, before
// anything is adjusted. The drawn token's own is written where it is drawn (sample.cu).
#include "kernels/cuda/sample_candidates.h"
#include "kernels/cuda/sample_device.h"

namespace cohort::cuda {
namespace {

// As fixed_log of kernels/cpu/vocabulary.cc, for a normal x.
GPU_FN double log_of(double x) {
  const auto bits = static_cast<unsigned long long>(__double_as_longlong(x));
  int exponent = static_cast<int>(bits >> 52) - 1022;
  const unsigned long long fraction = (bits & 0xfffffffffffffull) | 0x3fe0000000000000ull;
  double m = __longlong_as_double(static_cast<long long>(fraction));  // in [1/2, 1)
  if (m < 0x1.6a09e667f3bcdp-1) {                                     // to [1/sqrt 2, sqrt 2)
    m *= 2;
    exponent--;
  }
  const double s = __ddiv_rn(__dsub_rn(m, 1), __dadd_rn(m, 1)), square = __dmul_rn(s, s);
  double sum = 0;
#pragma unroll
  for (int k = 23; k >= 1; k -= 2) sum = __dadd_rn(__dmul_rn(sum, square), 1.0 / k);
  return __dadd_rn(__dmul_rn(__dmul_rn(2, s), sum),
                   __dmul_rn(static_cast<double>(exponent), 0x1.62e42fefa39efp-1));
}

// A block per row.
__global__ void __launch_bounds__(kRowThreads, 2) top_logprobs(SampleArgs a) {
  GPU_SHARED(Candidates, candidates, [1]);
  GPU_SHARED(Top, merged, [1]);
  const int row = static_cast<int>(blockIdx.x);
  const RowInput& in = a.inputs[row];
  if (in.slot < 0 || in.logprobs < 0) return;
  if (threadIdx.x < 32) {
    const Top found = merge_tiles(a.raw + static_cast<int64_t>(row) * a.tiles, a.tiles);
    if (threadIdx.x == 0) {
      merged[0] = found;
      candidates[0].loaded = false;
    }
  }
  __syncthreads();
  const Top top = merged[0];
  if (!top.ok) return;
  const double* total = add_blocks(gpu::dynamic_shared<double>(),
                                   a.block_sums + static_cast<int64_t>(row) * a.blocks, a.blocks);
  const double log_sum = log_of(*total);
  if (threadIdx.x == 0) a.log_sums[row] = log_sum;
  if (in.logprobs == 0) return;
  const float* logits = a.logits + static_cast<int64_t>(row) * a.vocab;
  const RowView view{logits, a.vocab, Weighing{top.logit, kLog2e, 0}, kNegativeInfinity};
  SampledRow& out = a.out[row];
  int count = 0;
  visit_in_order(candidates[0], view, in.logprobs, [&](unsigned long long key, float) {
    const double below = __fsub_rn(logit_of(key), top.logit);
    out.top_tokens[count] = token_of(key);
    out.top_logprobs[count++] = static_cast<float>(__dsub_rn(below, log_sum));
    return true;
  });
}

}  // namespace

cudaError_t launch_top_logprobs(cudaStream_t stream, const SampleArgs& args, int rows) {
  const size_t tree = static_cast<size_t>(tree_nodes(args.blocks)) * sizeof(double);
  return gpu::launch(top_logprobs, dim3(static_cast<unsigned>(rows)), row_threads(args.vocab), tree,
                     stream, args);
}

}  // namespace cohort::cuda
