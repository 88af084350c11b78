// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/attention_plan.h"
#include "kernels/cpu/cache_row.h"
#include "kernels/cpu/state.h"
#include "kernels/ops.h"

namespace cohort::ops::cpu {
namespace {

// Of one position.
struct Angles {
  const float *cosines, *sines;
  int dims;
  bool neighbours;
};

// (a, b) turned by the position's angle: a c - b s, b c + a s, each product and sum rounded. a and
// b are `dims` / 2 apart, or side by side.
void turn_halves(const float* __restrict in, float* __restrict out, const float* __restrict c,
                 const float* __restrict s, int half) {
  for (int i = 0; i < half; i++) {
    const float a = in[i], b = in[i + half];
    out[i] = a * c[i] - b * s[i];
    out[i + half] = b * c[i] + a * s[i];
  }
}
void turn_neighbours(const float* __restrict in, float* __restrict out, const float* __restrict c,
                     const float* __restrict s, int half) {
  for (int i = 0; i < half; i++) {
    const float a = in[2 * i], b = in[2 * i + 1];
    out[2 * i] = a * c[i] - b * s[i];
    out[2 * i + 1] = b * c[i] + a * s[i];
  }
}

// out [dim]: the head turned; dimensions past `dims` as they are.
void rotate(const float* head, int dim, const Angles& angles, float* out) {
  const auto turn = angles.neighbours ? turn_neighbours : turn_halves;
  turn(head, out, angles.cosines, angles.sines, angles.dims / 2);
  std::copy(head + angles.dims, head + dim, out + angles.dims);
}

struct Row {
  float* q_out;
  const float* qkv;
  int position;
  int32_t block;
};

void rope_store_row(const KvLayer& kv, const RopeTable& rope, const Row& row) {
  const KvGeometry& g = kv.geometry;
  const Angles angles{rope.cosines(row.position), rope.sines(row.position), rope.dims(),
                      rope.neighbours()};
  const float* k = row.qkv + g.heads * g.dim;
  const float* v = k + g.kv_heads * g.dim;
  for (int h = 0; h < g.heads; h++)
    rotate(row.qkv + h * g.dim, g.dim, angles, row.q_out + h * g.dim);
  std::byte* chunk = kv.data + size_t(row.block) * g.block_bytes();
  const int slot = row.position % kBlockTokens;
  for (int h = 0; h < g.kv_heads; h++, k += g.dim, v += g.dim, chunk += g.chunk_bytes()) {
    float turned[kMaxHeadDim];
    rotate(k, g.dim, angles, turned);
    cohort::cpu::store_key(g, chunk, slot, turned);
    cohort::cpu::store_value(g, chunk, slot, v);
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
