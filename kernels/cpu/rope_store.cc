// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/half.h"
#include "kernels/attention_plan.h"
#include "kernels/cpu/state.h"
#include "kernels/ops.h"

namespace cohort::ops::cpu {
namespace {

// (a, b) turned by the position's angle: a c - b s, b c + a s, each product and sum rounded.
void rotate(float* head, const float* cosines, const float* sines, int dims, bool neighbours) {
  const int half = dims / 2, step = neighbours ? 2 : 1, apart = neighbours ? 1 : half;
  for (int i = 0; i < half; i++) {
    const float a = head[i * step], b = head[i * step + apart];
    head[i * step] = a * cosines[i] - b * sines[i];
    head[i * step + apart] = b * cosines[i] + a * sines[i];
  }
}

// A finite value beyond f16's range becomes the largest one: infinity would poison every later
// token. NaN and infinity stay.
uint16_t to_cache_half(float x) {
  constexpr float kLargest = 65504;
  const bool finite = x - x == 0;
  return float_to_half(finite ? std::clamp(x, -kLargest, kLargest) : x);
}

// Element i of x goes to plane[i * step].
void store(DType type, std::byte* plane, int64_t step, const float* x, int dim) {
  if (type == DType::f32) {
    for (int i = 0; i < dim; i++) reinterpret_cast<float*>(plane)[i * step] = x[i];
    return;
  }
  auto* to = reinterpret_cast<uint16_t*>(plane);
  if (type == DType::bf16)
    for (int i = 0; i < dim; i++) to[i * step] = float_to_bf16(x[i]);
  else
    for (int i = 0; i < dim; i++) to[i * step] = to_cache_half(x[i]);
}

struct Row {
  float* q_out;
  float* qkv;
  int position;
  int32_t block;
};

void rope_store_row(const KvLayer& kv, const RopeTable& rope, const Row& row) {
  const KvGeometry& g = kv.geometry;
  const float *cosines = rope.cosines(row.position), *sines = rope.sines(row.position);
  float* k = row.qkv + g.heads * g.dim;
  const float* v = k + g.kv_heads * g.dim;
  std::copy_n(row.qkv, g.heads * g.dim, row.q_out);
  for (int h = 0; h < g.heads; h++)
    rotate(row.q_out + h * g.dim, cosines, sines, rope.dims(), rope.neighbours());
  const int slot = row.position % kBlockTokens;
  const auto element = bytes_of(g.dtype, 1);
  for (int h = 0; h < g.kv_heads; h++, k += g.dim, v += g.dim) {
    float turned[kMaxHeadDim];
    std::copy_n(k, g.dim, turned);
    rotate(turned, cosines, sines, rope.dims(), rope.neighbours());
    std::byte* chunk = kv.data + size_t(row.block) * g.block_bytes() + size_t(h) * g.chunk_bytes();
    store(g.dtype, chunk + slot * element, kBlockTokens, turned, g.dim);
    store(g.dtype, chunk + g.plane_bytes() + slot * g.dim * element, 1, v, g.dim);
  }
}

}  // namespace

void rope_store(Stream& stream, Tensor q_out, const KvLayer& kv, Tensor qkv,
                const AttentionBatch& batch, const RopeTable& rope) {
  const KvGeometry& g = kv.geometry;
  const int64_t width = qkv.dim(1);
  const auto& rows = batch.plan().rows;
  const auto count = int64_t(rows.size());
  cohort::cpu::for_rows(stream, count, count * width, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) {
      const AttentionEntry& e = batch.entries()[size_t(rows[size_t(i)].entry)];
      const int64_t row = e.first_row + rows[size_t(i)].index;
      const int position = e.start + rows[size_t(i)].index;
      rope_store_row(kv, rope,
                     {q_out.f32() + row * g.heads * g.dim, qkv.f32() + row * width, position,
                      e.blocks[position / kBlockTokens]});
    }
  });
}

}  // namespace cohort::ops::cpu
