// SPDX-License-Identifier: Apache-2.0
// Rotation of q and k, and k and v into the cache.
//
// A block has one row. threadIdx.x walks a head, threadIdx.y the heads of the row: q, then k, then
// v. A thread has two runs of a head that the rotation combines, so its cosines and sines serve all
// its heads. Heads of v are only copied.
//
// Bytes per element of qkv: A read, A (q) or the cache's type (k, v) written; 3 FLOPs, 7 with the
// norm: bound by memory.
#include "kernels/cuda/rope_store.h"

#include "kernels/cuda/batch.h"
#include "kernels/cuda/elements.h"
#include "kernels/cuda/state.h"
#include "kernels/ops.h"

namespace cohort::cuda {
namespace {

constexpr unsigned kThreads = 512;
constexpr int kMaxLanes = 32;  // that share a head: a norm adds over one warp at most

struct HeadNorm {
  const float* q_weight;  // null: none
  const float* k_weight;
  float eps;
};
struct Rotation {
  const float* table;  // [position][cosines [dims / 2] | sines [dims / 2]]
  int dims;
  bool neighbours;
};
struct Cache {
  std::byte* data;
  int heads, kv_heads, dim;
};

// The two runs of kN elements of a head that unit u works on, and where their angles begin. Units
// from dims / 2 elements on only copy.
struct Unit {
  int a, b, angle;
  bool turns;
};
template <int kN>
GPU_FN Unit unit_at(int u, const Rotation& r, int dim) {
  const int half = r.dims / 2, at = u * kN;
  if (at >= half) {
    const int a = r.dims + at - half;
    return {a, a + (dim - r.dims) / 2, 0, false};
  }
  if (r.neighbours) return {2 * at, 2 * at + kN, at, true};
  return {at, at + half, at, true};
}

// (a, b) turned by an angle, every product and sum rounded as on the CPU.
GPU_FN void turn(float& a, float& b, float cosine, float sine) {
  const float x = a, y = b;
  a = __fsub_rn(__fmul_rn(x, cosine), __fmul_rn(y, sine));
  b = __fadd_rn(__fmul_rn(y, cosine), __fmul_rn(x, sine));
}

// What one thread has of a head: `present` of its kUnits units.
template <int kN, int kUnits>
struct Mine {
  Unit units[kUnits];
  int present = 0;

  GPU_FN Mine(const Rotation& r, int dim) {
#pragma unroll
    for (int i = 0; i < kUnits; i++) {
      const int u = int(threadIdx.x) + i * int(blockDim.x);
      units[i] = unit_at<kN>(u, r, dim);
      if (2 * u * kN < dim) present = i + 1;
    }
  }
};

// The values of these units, or their angles.
template <int kN, int kUnits>
struct Piece {
  using Own = Mine<kN, kUnits>;
  float v[kUnits][2 * kN];

  template <class T>
  GPU_FN void load(const T* head, const Own& own, bool there) {
#pragma unroll
    for (int i = 0; i < kUnits; i++) {
#pragma unroll
      for (int j = 0; j < 2 * kN; j++) v[i][j] = 0;
      if (!there || i >= own.present) continue;
      load_run<kN>(head + own.units[i].a, v[i]);
      load_run<kN>(head + own.units[i].b, v[i] + kN);
    }
  }
  template <class T>
  GPU_FN void store(T* head, const Own& own) const {
#pragma unroll
    for (int i = 0; i < kUnits; i++) {
      if (i >= own.present) continue;
      store_run<kN>(head + own.units[i].a, v[i]);
      store_run<kN>(head + own.units[i].b, v[i] + kN);
    }
  }
  GPU_FN void load_angles(const Rotation& r, int position, const Own& own) {
    const float* cosines = r.table + int64_t(position) * r.dims;
#pragma unroll
    for (int i = 0; i < kUnits; i++) {
      if (i >= own.present || !own.units[i].turns) continue;
      load_run<kN>(cosines + own.units[i].angle, v[i]);
      load_run<kN>(cosines + r.dims / 2 + own.units[i].angle, v[i] + kN);
    }
  }
  GPU_FN void rotate(const Piece& angles, const Own& own, bool neighbours) {
#pragma unroll
    for (int i = 0; i < kUnits; i++) {
      if (!own.units[i].turns) continue;
      const float* c = angles.v[i];
#pragma unroll
      for (int j = 0; j < kN; j++)
        if (neighbours)
          turn(v[i][2 * j], v[i][2 * j + 1], c[j], c[kN + j]);
        else
          turn(v[i][j], v[i][kN + j], c[j], c[kN + j]);
    }
  }
  // Sum of squares over the head's threads: each adds its own in order, a butterfly adds them.
  GPU_FN float sum_of_squares() const {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kUnits; i++)
#pragma unroll
      for (int j = 0; j < 2 * kN; j++) sum = __fmaf_rn(v[i][j], v[i][j], sum);
    for (int apart = int(blockDim.x) / 2; apart > 0; apart /= 2)
      sum += __shfl_xor_sync(0xffffffffu, sum, apart);
    return sum;
  }
  GPU_FN void scale(float by, const float* weight, const Own& own) {
    Piece w;
    w.load(weight, own, true);
#pragma unroll
    for (int i = 0; i < kUnits; i++)
#pragma unroll
      for (int j = 0; j < 2 * kN; j++) v[i][j] = v[i][j] * by * w.v[i][j];
  }
};

// Where KV head h of the row's token begins in the cache; its values are one plane further on.
template <class C>
struct Slot {
  C* token;
  int plane;  // elements
  GPU_FN Slot(const Cache& c, const DeviceBatch& batch, int row, int position)
      : plane(c.dim * kBlockTokens) {
    const int32_t first = batch.first_block[batch.row_entry[row]];
    const int64_t block = batch.blocks[first + position / kBlockTokens];
    token = reinterpret_cast<C*>(c.data) + block * c.kv_heads * 2 * plane +
            position % kBlockTokens * c.dim;
  }
  // kv: 0 .. kv_heads - 1 of k, and on with v.
  GPU_FN C* head(const Cache& c, int kv) const {
    const bool value = kv >= c.kv_heads;
    return token + (value ? 2 * (kv - c.kv_heads) + 1 : 2 * kv) * plane;
  }
};

// Every thread comes to the shuffles of a norm, also those without a head.
template <class A, class C, int kN, int kUnits, bool kNorm>
__global__ void __launch_bounds__(kThreads)
    rotate_and_store(A* q_out, const A* qkv, Cache cache, DeviceBatch batch, Rotation rotation,
                     HeadNorm norm) {
  const int row = int(blockIdx.x), position = batch.position[row];
  if (position < 0) return;
  const Mine<kN, kUnits> own(rotation, cache.dim);
  Piece<kN, kUnits> angles, x;
  angles.load_angles(rotation, position, own);
  const Slot<C> slot(cache, batch, row, position);
  const int heads = cache.heads, keys = heads + cache.kv_heads, all = keys + cache.kv_heads;
  qkv += int64_t(row) * all * cache.dim;
  q_out += int64_t(row) * heads * cache.dim;
  for (int first = 0; first < all; first += int(blockDim.y)) {
    const int head = first + int(threadIdx.y);
    x.load(qkv + head * cache.dim, own, head < all);
    if constexpr (kNorm) {
      const float mean = __fdiv_rn(x.sum_of_squares(), float(cache.dim));
      if (head < keys)
        x.scale(__fdiv_rn(1.0f, __fsqrt_rn(mean + norm.eps)),
                head < heads ? norm.q_weight : norm.k_weight, own);
    }
    if (head < keys) x.rotate(angles, own, rotation.neighbours);
    if (head < heads)
      x.store(q_out + head * cache.dim, own);
    else if (head < all)
      x.store(slot.head(cache, head - heads), own);
  }
}

struct Call {
  Stream& stream;
  Tensor q_out, qkv;
  const KvLayer& kv;
  const AttentionBatch& batch;
  const RopeTable& rope;
  HeadNorm norm;
};

template <class A, class C, int kN, int kUnits>
cudaError_t launch_kernel(const Call& call) {
  const KvGeometry& g = call.kv.geometry;
  unsigned lanes = 1;
  while (lanes < kMaxLanes && int(lanes) * 2 * kN < g.dim) lanes *= 2;
  static_assert(kMaxLanes * kUnits * 2 * kN >= kMaxGpuHeadDim);
  const unsigned all = unsigned(g.heads + 2 * g.kv_heads);
  const bool norm = call.norm.q_weight != nullptr;
  return gpu::launch(
      norm ? rotate_and_store<A, C, kN, kUnits, true> : rotate_and_store<A, C, kN, kUnits, false>,
      dim3(unsigned(call.batch.rows())),
      dim3(lanes, threads_for(int64_t(all) * lanes, kThreads) / lanes), 0, compute(call.stream),
      call.q_out.as<A>(), call.qkv.as<const A>(), Cache{call.kv.data, g.heads, g.kv_heads, g.dim},
      call.batch.device(), Rotation{call.rope.cosines(0), call.rope.dims(), call.rope.neighbours()},
      call.norm);
}

template <class A, class C>
void launch_typed(const Call& call) {
  const bool wide = call.kv.geometry.dim % (2 * kRun) == 0 && call.rope.dims() % (2 * kRun) == 0;
  cuda_check(wide ? launch_kernel<A, C, kRun, 1>(call) : launch_kernel<A, C, 1, 8>(call),
             "rope_store");
}

void run(const Call& call) {
  if (call.batch.rows() == 0) return;
  for_float_type(call.qkv.dtype(), [&]<class A>(A*) {
    if (call.kv.geometry.dtype == DType::f8_e4m3) return launch_typed<A, __nv_fp8_e4m3>(call);
    for_float_type(call.kv.geometry.dtype, [&]<class C>(C*) { launch_typed<A, C>(call); });
  });
}

}  // namespace

void qk_norm_rope_store(Stream& stream, Tensor q_out, const KvLayer& kv, Tensor qkv,
                        const AttentionBatch& batch, const RopeTable& rope, const float* q_weight,
                        const float* k_weight, float eps) {
  const KvGeometry& g = kv.geometry;
  COHORT_CHECK(qkv.dtype() == stream.activations() && q_out.dtype() == qkv.dtype());
  COHORT_CHECK_EQ(qkv.dim(1), int64_t(g.heads + 2 * g.kv_heads) * g.dim);
  COHORT_CHECK_EQ(q_out.dim(1), int64_t(g.heads) * g.dim);
  COHORT_CHECK_LE(rope.dims(), g.dim);
  COHORT_CHECK(q_weight != nullptr && k_weight != nullptr);
  run({stream, q_out, qkv, kv, batch, rope, {q_weight, k_weight, eps}});
}

}  // namespace cohort::cuda

namespace cohort::ops::cuda {

void rope_store(Stream& stream, Tensor q_out, const KvLayer& kv, Tensor qkv,
                const AttentionBatch& batch, const RopeTable& rope) {
  cohort::cuda::run({stream, q_out, qkv, kv, batch, rope, {}});
}

}  // namespace cohort::ops::cuda
