// SPDX-License-Identifier: Apache-2.0
// Copies of rows and blocks: 8 bytes per f32, no arithmetic, bound by memory.
#include "kernels/cuda/blocks.h"
#include "kernels/cuda/elements.h"
#include "kernels/cuda/state.h"
#include "kernels/ops.h"

namespace cohort::cuda {
namespace {

constexpr unsigned kThreads = 256;
constexpr int kCopies = 4;  // of a thread, all loaded before they are stored
constexpr int kMaxBlocks = 64;

// Piece `piece` of n values of type W from one place to another: kCopies for each thread.
template <class W>
GPU_FN void copy_piece(W* to, const W* from, int n, unsigned piece) {
  const int first = int(piece * kCopies * blockDim.x + threadIdx.x);
  W v[kCopies];
#pragma unroll
  for (int i = 0; i < kCopies; i++)
    if (first + i * int(blockDim.x) < n) v[i] = from[first + i * int(blockDim.x)];
#pragma unroll
  for (int i = 0; i < kCopies; i++)
    if (first + i * int(blockDim.x) < n) to[first + i * int(blockDim.x)] = v[i];
}

// Widths in units of W (uint4 or 4 bytes). A block: row blockIdx.x, piece blockIdx.y.
template <class W>
__global__ void __launch_bounds__(kThreads)
    gather(W* out, const W* x, const int32_t* rows, int width) {
  copy_piece(out + int64_t(blockIdx.x) * width, x + int64_t(rows[blockIdx.x]) * width, width,
             blockIdx.y);
}

struct Columns {  // of block i: [begin[i], begin[i + 1])
  int32_t begin[kMaxBlocks + 1];
};

// A block: row blockIdx.x, block of columns blockIdx.y, piece blockIdx.z.
template <class W>
__global__ void __launch_bounds__(kThreads)
    put_side_by_side(W* out, const W* gathered, Columns columns, int width) {
  const int begin = columns.begin[blockIdx.y], n = columns.begin[blockIdx.y + 1] - begin;
  const W* block = gathered + int64_t(gridDim.x) * begin;
  copy_piece(out + int64_t(blockIdx.x) * width + begin, block + int64_t(blockIdx.x) * n, n,
             blockIdx.z);
}

// A block: KV block blockIdx.x of the list, piece blockIdx.y. n: words of a KV block.
template <bool kPack>
__global__ void __launch_bounds__(kThreads)
    move_blocks(uint4* cache, const int32_t* ids, uint4* packed, int n) {
  const int32_t id = ids[blockIdx.x];
  if (id < 0) return;
  uint4* in_cache = cache + int64_t(id) * n;
  uint4* in_packed = packed + int64_t(blockIdx.x) * n;
  copy_piece(kPack ? in_packed : in_cache, kPack ? in_cache : in_packed, n, blockIdx.y);
}

struct Shape {
  unsigned threads, pieces;
};
Shape shape_for(int64_t width) {
  const unsigned threads = threads_for((width + kCopies - 1) / kCopies, kThreads);
  return {threads, divide_up(width, int64_t(threads) * kCopies)};
}

template <class W>
cudaError_t launch_gather(cudaStream_t stream, const Tensor& out, const Tensor& x,
                          const Tensor& rows) {
  const int width = int(out.dim(1) * int64_t(sizeof(float)) / int64_t(sizeof(W)));
  const Shape shape = shape_for(width);
  return gpu::launch(gather<W>, dim3(unsigned(out.dim(0)), shape.pieces), dim3(shape.threads), 0,
                     stream, out.as<W>(), x.as<const W>(), rows.i32(), width);
}

template <class W>
cudaError_t launch_interleave(cudaStream_t stream, const Tensor& out, const Tensor& gathered,
                              std::span<const int64_t> widths) {
  const int64_t per_word = int64_t(sizeof(W) / sizeof(float));
  Columns columns{};
  int64_t widest = 0;
  for (size_t i = 0; i < widths.size(); i++) {
    columns.begin[i + 1] = columns.begin[i] + int32_t(widths[i] / per_word);
    widest = widths[i] > widest ? widths[i] : widest;
  }
  const Shape shape = shape_for(widest / per_word);
  return gpu::launch(put_side_by_side<W>,
                     dim3(unsigned(out.dim(0)), unsigned(widths.size()), shape.pieces),
                     dim3(shape.threads), 0, stream, out.as<W>(), gathered.as<const W>(), columns,
                     int(out.dim(1) / per_word));
}

}  // namespace

void copy_blocks(Stream& stream, const KvLayer& kv, Tensor block_ids, void* packed,
                 Direction direction) {
  COHORT_CHECK(block_ids.dtype() == DType::i32 && block_ids.rank() == 1);
  const auto words = int(kv.geometry.block_bytes() / sizeof(uint4));
  if (block_ids.elements() == 0 || words == 0) return;
  const Shape shape = shape_for(words);
  cuda_check(gpu::launch(direction == Direction::pack ? move_blocks<true> : move_blocks<false>,
                         dim3(unsigned(block_ids.dim(0)), shape.pieces), dim3(shape.threads), 0,
                         compute(stream), reinterpret_cast<uint4*>(kv.data), block_ids.i32(),
                         static_cast<uint4*>(packed), words),
             "copy_blocks");
}

}  // namespace cohort::cuda

namespace cohort::ops::cuda {
using namespace cohort::cuda;

void gather_rows(Stream& stream, Tensor out, Tensor x, Tensor rows) {
  if (out.elements() == 0) return;
  const bool wide = out.dim(1) % 4 == 0;
  cuda_check(wide ? launch_gather<uint4>(compute(stream), out, x, rows)
                  : launch_gather<uint32_t>(compute(stream), out, x, rows),
             "gather_rows");
}

void interleave(Stream& stream, Tensor out, Tensor gathered, std::span<const int64_t> widths) {
  if (out.elements() == 0) return;
  COHORT_CHECK_LE(widths.size(), size_t(kMaxBlocks));
  bool wide = true;
  for (const int64_t width : widths) wide = wide && width % 4 == 0;
  cuda_check(wide ? launch_interleave<uint4>(compute(stream), out, gathered, widths)
                  : launch_interleave<uint32_t>(compute(stream), out, gathered, widths),
             "interleave");
}

}  // namespace cohort::ops::cuda
