// SPDX-License-Identifier: Apache-2.0
// Chooses the attention kernel. All of them read their work on the device: a captured step replays
// with another batch.
#include <cmath>

#include "base/check.h"
#include "kernels/cuda/attention_launch.h"
#include "kernels/cuda/state.h"
#include "kernels/ops.h"

namespace cohort::ops::cuda {
namespace {

using namespace cohort::cuda;

Element element(DType type) {
  switch (type) {
    case DType::f32:
      return Element::f32;
    case DType::f16:
      return Element::f16;
    case DType::bf16:
      return Element::bf16;
    default:
      COHORT_CHECK(type == DType::f8_e4m3);
      return Element::f8;
  }
}

AttentionArgs arguments(const Tensor& out, const Tensor& q, const KvLayer& kv,
                        const DeviceBatch& batch) {
  const KvGeometry& g = kv.geometry;
  AttentionArgs a{};
  a.batch = batch;
  a.q = q.data(), a.out = out.data(), a.cache = kv.data;
  a.block_bytes = int64_t(g.block_bytes()), a.chunk_bytes = int64_t(g.chunk_bytes());
  a.plane_bytes = int64_t(g.plane_bytes());
  a.heads = g.heads, a.dim = g.dim;
  a.scale = float(1.4426950408889634 / std::sqrt(double(g.dim)));
  return a;
}

cudaError_t attend(const AttentionLaunch& launch, Element activations, Element cache) {
  const bool f8 = cache == Element::f8, tensor = launch.args.dim <= kMaxTensorDim;
  if (tensor && activations == Element::f16 && (cache == Element::f16 || f8))
    return attend_f16(launch, f8);
  if (tensor && activations == Element::bf16 && (cache == Element::bf16 || f8))
    return attend_bf16(launch, f8);
  return attend_plain(launch, activations, cache);
}

}  // namespace

void attention(Stream& stream, Tensor out, Tensor q, const KvLayer& kv,
               const AttentionBatch& batch) {
  const Element activations = element(q.dtype());
  const AttentionLaunch launch{arguments(out, q, kv, batch.device()),
                               device(stream).multiprocessors(), compute(stream)};
  cuda_check(attend(launch, activations, element(kv.geometry.dtype)), "attention");
  cuda_check(merge_attention(launch, activations), "attention");
}

}  // namespace cohort::ops::cuda
