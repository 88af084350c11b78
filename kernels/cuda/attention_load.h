// SPDX-License-Identifier: Apache-2.0
// Brings a split's keys and values from the paged cache to shared memory, as 16-bit tiles [key][D]
// whose rows end in 16 unused bytes: rows are then an odd number of 16-byte units apart, and
// ldmatrix meets no bank twice. Keys past the last position and dimensions past the head's are
// zeros, so nothing that was never written matters.
#pragma once
#include <type_traits>

#include "kernels/cuda/attention_parts.h"

namespace cohort::cuda {

inline constexpr int kAttentionThreads = 128;
inline constexpr int kSplitBlocks = kSplitKeys / kBlockTokens;

// What shared memory (99 KiB on the smallest GPUs) has room for.
enum class Staging {
  two_tiles,  // keys of the next split load while values are used, values while keys are
  one_tile,   // for keys, then values; only other blocks of threads compute meanwhile
  raw,        // e4m3 as stored, of a whole split, and one tile that it is converted to
  direct,     // one tile, converted from global memory
};

// A: of tiles; C: of the cache, A or e4m3. D: dimensions with padding.
template <class A, class C, int D>
struct TileShape {
  static constexpr bool kConverted = !std::is_same_v<A, C>;
  static constexpr Staging kStaging = kConverted
                                          ? (D <= 128 ? Staging::raw : Staging::direct)
                                          : (D <= 128 ? Staging::two_tiles : Staging::one_tile);
  static constexpr int kRow = D + 8;               // elements
  static constexpr int kTile = kSplitKeys * kRow;  // elements
  static constexpr int kTileBytes = (kStaging == Staging::two_tiles ? 2 : 1) * kTile * 2;
  static constexpr int kRawPlane = kBlockTokens * D;  // bytes; all of keys, then all of values
  static constexpr int kRawBytes = kStaging == Staging::raw ? 2 * kSplitBlocks * kRawPlane : 0;
  static constexpr int kScoreRow = kSplitKeys + 8;  // floats
  static constexpr int kBytes = kTileBytes + kRawBytes + kThinPairs * kScoreRow * 4;
  static_assert(kBytes <= 99 << 10, "must run on sm_86");
};

// Four e4m3 as two pairs of A.
template <class A>
GPU_FN uint2 widened(std::uint32_t four) {
  uint2 out;
  std::uint32_t pair[2] = {four & 0xffffu, four >> 16}, to[2];
#pragma unroll
  for (int i = 0; i < 2; i++) {
    if constexpr (std::is_same_v<A, __half>) {
      to[i] = gpu::value_of<__half2_raw, std::uint32_t>(
          __nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(pair[i]), __NV_E4M3));
    } else {
      const float2 f = gpu::unpack2<__nv_fp8_e4m3>(pair[i]);
      to[i] = gpu::pack2<A>(f.x, f.y);
    }
  }
  out.x = to[0], out.y = to[1];
  return out;
}

// Of all threads of a block; splits come in order. For each the block calls, together: keys_ready,
// use of keys(), keys_used, values_ready, use of values(), values_used.
template <class A, class C, int D>
class SplitLoader {
  using Shape = TileShape<A, C, D>;
  static constexpr Staging kStaging = Shape::kStaging;
  static constexpr int kUnits = D / 8;  // of 8 elements in a row
  static constexpr int kLoads = (kBlockTokens * kUnits + kAttentionThreads - 1) / kAttentionThreads;

 public:
  GPU_FN SplitLoader(const AttentionArgs& a, const AttentionWork& w, std::byte* shared)
      : a_(a),
        blocks_(a.batch.blocks + a.batch.first_block[w.entry]),
        head_(a.cache + w.kv_head * a.chunk_bytes),
        tiles_(reinterpret_cast<A*>(shared)),
        raw_(shared + Shape::kTileBytes),
        keys_(keys_of(a, w)) {}

  GPU_FN const A* keys() const { return tiles_; }
  GPU_FN const A* values() const { return tile(1); }

  GPU_FN void begin(int split) {
    look_up(split);
    if constexpr (kStaging != Staging::direct) start_keys(split);
    if constexpr (kStaging == Staging::raw) start_values(split);
  }

  // A barrier, behind which keys() are there.
  GPU_FN void keys_ready(int split) {
    gpu::cp_async_wait<0>();
    __syncthreads();
    if constexpr (kStaging == Staging::two_tiles) start_values(split);
    if constexpr (Shape::kConverted) {
      convert(split, 0);
      __syncthreads();
    }
    if constexpr (kStaging == Staging::direct) look_up(split + 1);
  }
  // A barrier, before which all have read keys().
  GPU_FN void keys_used(int split, bool more) {
    if constexpr (kStaging == Staging::two_tiles) gpu::cp_async_wait<0>();
    __syncthreads();
    if (kStaging == Staging::two_tiles && more) start_keys(split + 1);
    if constexpr (kStaging == Staging::one_tile) start_values(split);
    if constexpr (Shape::kConverted) convert(split, 1);
  }
  GPU_FN void values_ready(int split, bool more) {
    if constexpr (kStaging == Staging::two_tiles) return;
    gpu::cp_async_wait<0>();
    __syncthreads();
    if (kStaging != Staging::raw || !more) return;
    start_keys(split + 1);
    start_values(split + 1);
  }
  GPU_FN void values_used(int split, bool more) {
    if (kStaging != Staging::one_tile || !more) return;
    __syncthreads();
    start_keys(split + 1);
  }

 private:
  struct Unit {
    int token, dim;
  };
  GPU_FN Unit unit(int i) const {
    const int n = static_cast<int>(threadIdx.x) + i * kAttentionThreads;
    return {n / kUnits, n % kUnits * 8};
  }
  GPU_FN bool present(int split, int b, Unit u) const {
    return split * kSplitKeys + b * kBlockTokens + u.token < keys_ && u.dim < a_.dim;
  }
  // `which`: 0 keys, 1 values.
  GPU_FN A* tile(int which) const {
    return tiles_ + (kStaging == Staging::two_tiles ? which * Shape::kTile : 0);
  }

  // Lane l of every warp holds the id of block l modulo 32, those of this split and of the next.
  GPU_FN void look_up(int split) {
    const int lane = static_cast<int>(threadIdx.x) & 31;
    const int block = split * kSplitBlocks + lane % kSplitBlocks;
    if (lane / kSplitBlocks == split % (32 / kSplitBlocks))
      id_ = block * kBlockTokens < keys_ ? blocks_[block] : 0;
  }
  // Of a block of the split; by all lanes of a warp.
  GPU_FN const std::byte* plane(int split, int b, int which) const {
    const int id = __shfl_sync(0xffffffffu, id_, (split * kSplitBlocks + b) & 31);
    return head_ + id * a_.block_bytes + (which ? a_.plane_bytes : 0);
  }

  GPU_FN void start_keys(int split) {
    start(split, 0);
    look_up(split + 1);
  }
  GPU_FN void start_values(int split) { start(split, 1); }
  GPU_FN void start(int split, int which) {
    if constexpr (kStaging == Staging::raw) start_raw(split, which);
    if constexpr (!Shape::kConverted) start_tile(split, which);
    gpu::cp_async_commit();
  }

  GPU_FN void start_tile(int split, int which) {
#pragma unroll
    for (int b = 0; b < kSplitBlocks; b++) {
      const std::byte* const from = plane(split, b, which);
#pragma unroll
      for (int i = 0; i < kLoads; i++) {
        const Unit u = unit(i);
        if (u.token >= kBlockTokens) continue;
        const bool there = present(split, b, u);
        gpu::cp_async16(tile(which) + (b * kBlockTokens + u.token) * Shape::kRow + u.dim,
                        from + (there ? (u.token * a_.dim + u.dim) * 2 : 0), there);
      }
    }
  }

  // Planes as they are: 16 keys of one byte per dimension are `dim` units of 16 bytes.
  GPU_FN void start_raw(int split, int which) {
    std::byte* const to = raw_ + which * kSplitBlocks * Shape::kRawPlane;
#pragma unroll
    for (int b = 0; b < kSplitBlocks; b++) {
      const bool there = split * kSplitKeys + b * kBlockTokens < keys_;
      const std::byte* const from = plane(split, b, which);
      const int i = static_cast<int>(threadIdx.x);
      if (i < a_.dim) gpu::cp_async16(to + b * Shape::kRawPlane + 16 * i, from + 16 * i, there);
    }
  }

  // e4m3 to the tile.
  GPU_FN void convert(int split, int which) {
#pragma unroll
    for (int b = 0; b < kSplitBlocks; b++) {
      const std::byte* from = kStaging == Staging::raw
                                  ? raw_ + (which * kSplitBlocks + b) * Shape::kRawPlane
                                  : plane(split, b, which);
#pragma unroll
      for (int i = 0; i < kLoads; i++) {
        const Unit u = unit(i);
        if (u.token >= kBlockTokens) continue;
        uint4 out = make_uint4(0, 0, 0, 0);
        if (present(split, b, u)) {
          const uint2 in = gpu::load8<uint2>(from + u.token * a_.dim + u.dim);
          const uint2 low = widened<A>(in.x), high = widened<A>(in.y);
          out = make_uint4(low.x, low.y, high.x, high.y);
        }
        gpu::store16(tile(which) + (b * kBlockTokens + u.token) * Shape::kRow + u.dim, out);
      }
    }
  }

  const AttentionArgs& a_;
  const int32_t* const blocks_;
  const std::byte* const head_;
  A* const tiles_;
  std::byte* const raw_;
  const int keys_;
  int32_t id_ = 0;
};

}  // namespace cohort::cuda
