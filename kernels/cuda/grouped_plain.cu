// SPDX-License-Identifier: Apache-2.0
// f16 or bf16 activations times a group of matrices of the same type, in the order of slices.h.
//
// A lane of a warp, 4 g + c, reads 16 bytes of rows g and g + 8 of a tile: columns 8 c .. 8 c + 7
// of a record of 32. Its first four columns are its share of one mma, the others of a second one;
// B is dealt alike, so products are the same as with columns in order, and nothing is shuffled.
#include "kernels/cuda/grouped_device.h"
#include "kernels/cuda/portable.h"
#include "kernels/cuda/slices.h"

namespace cohort::cuda {
namespace {

constexpr int kRecord = 32;  // columns

// A lane's share of 32 rows of weights: of rows g, g + 8, g + 16 and g + 24.
using PlainRecord = uint4[4];

// Adds a record of one tile of 16 rows to the sums of 8 N tokens. low, high: of rows g and g + 8.
template <class T, int N>
GPU_FN void add_plain(const uint4& low, const uint4& high, const uint4 (&x)[N],
                      float (&sums)[N][4]) {
  const std::uint32_t a[2][4] = {{low.x, high.x, low.y, high.y}, {low.z, high.z, low.w, high.w}};
#pragma unroll
  for (int i = 0; i < N; i++) {
    const std::uint32_t b[2][2] = {{x[i].x, x[i].y}, {x[i].z, x[i].w}};
    mma(sums[i], a[0], b[0], T());
    mma(sums[i], a[1], b[1], T());
  }
}

template <class T>
GPU_FN void put(const GroupedProduct& g, int first, int count, int token, std::int64_t row,
                float value) {
  if (token >= count || row >= g.n) return;
  static_cast<T*>(g.y)[(first + token) * g.y_stride + row] = gpu::from_float<T>(value);
}

// ---- few rows: a block of 8 warps for a panel of 32 rows of weights; grid (panels, matrices that
// can have rows) ----

// Eight columns of a row from `column` on, zeros past the last. kWide: rows are multiples of 16
// bytes. kOnce: nobody reads them again.
template <class T, bool kWide, bool kOnce>
GPU_FN uint4 load_eight(const T* row, std::int64_t column, std::int64_t columns) {
  if constexpr (kWide) {
    if (column >= columns) return make_uint4(0, 0, 0, 0);
    return kOnce ? gpu::load16_stream<uint4>(row + column) : gpu::load16<uint4>(row + column);
  } else {
    std::uint32_t word[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const std::int64_t at = column + 2 * i;
      const float low = at < columns ? gpu::to_float(row[at]) : 0.0f;
      const float high = at + 1 < columns ? gpu::to_float(row[at + 1]) : 0.0f;
      word[i] = gpu::pack2<T>(low, high);  // exact
    }
    return make_uint4(word[0], word[1], word[2], word[3]);
  }
}

// Records [begin, end) of a panel of weights and `rows` rows of x, of N tiles.
template <class T, int N, bool kWide>
GPU_FN void sum_plain_slice(const GroupedProduct& g, const T* weights, std::int64_t first_row,
                            const T* x, int rows, int begin, int end, QuantSums<N>& sums) {
  constexpr int kAhead = kWide ? 2 : 1;  // records whose loads are on their way
  const int lane = threadIdx.x % 32, of_record = lane % 4 * 8;
  const T *row[4], *token[N];
#pragma unroll
  for (int r = 0; r < 4; r++)
    row[r] = weights + least(first_row + r * 8 + lane / 4, g.n - 1) * g.columns;
#pragma unroll
  for (int i = 0; i < N; i++) token[i] = x + least(i * 8 + lane / 4, rows - 1) * g.columns;
#pragma unroll 1
  for (int b = begin; b < end; b += kAhead) {
    PlainRecord w[kAhead];
    uint4 tokens[kAhead][N];
#pragma unroll
    for (int u = 0; u < kAhead; u++) {
      const std::int64_t at = least(b + u, end - 1) * kRecord + of_record;
#pragma unroll
      for (int r = 0; r < 4; r++) w[u][r] = load_eight<T, kWide, true>(row[r], at, g.columns);
#pragma unroll
      for (int i = 0; i < N; i++)
        tokens[u][i] = load_eight<T, kWide, false>(token[i], at, g.columns);
    }
#pragma unroll
    for (int u = 0; u < kAhead; u++)
      if (b + u < end) {
        add_plain<T, N>(w[u][0], w[u][1], tokens[u], sums[0]);
        add_plain<T, N>(w[u][2], w[u][3], tokens[u], sums[1]);
      }
  }
}

template <class T, int N, bool kWide>
__global__ void __launch_bounds__(kGroupThreads) grouped_plain_few_kernel(GroupedProduct g) {
  GPU_SHARED(float, slices, [kSlices][2 * N * 4 * 32]);
  const int warp = threadIdx.x / 32, group = group_of_block(g);
  if (group < 0) return;
  const int begin = g.offsets[group], end = g.offsets[group + 1];
  const int records = static_cast<int>((g.columns + kRecord - 1) / kRecord);
  const std::int64_t panel = std::int64_t{blockIdx.x} * kQuantPanel;
  const T* weights = reinterpret_cast<const T*>(g.weights[group]);
#pragma unroll 1
  for (int first = begin; first < end; first += 8 * N) {
    if (first > begin) __syncthreads();  // slices of the last rows are read
    const int rows = end - first < 8 * N ? end - first : 8 * N;
    float sums[2][N][4] = {};
    sum_plain_slice<T, N, kWide>(g, weights, panel, static_cast<const T*>(g.x) + first * g.columns,
                                 rows, slice_begin(records, warp), slice_begin(records, warp + 1),
                                 sums);
    put_slices<N>(sums, slices, [&](int token, int row, float total) {
      put<T>(g, first, rows, token, panel + row, total);
    });
  }
}

// ---- many rows: a block of 8 warps for 128 rows of weights by 64 of x; grid (n / 128, tiles) ----

constexpr int kTileWeights = 128, kStageColumns = 64, kStages = 3, kThreads = 256;
constexpr int kStageRows = kTileWeights + kTileRows;
constexpr int kStageBytes = kStageRows * kStageColumns * 2;

// Where 8 columns of a row lie in a stage: weights first, then x. A quarter of a warp reads 64
// bytes of two neighbouring rows at a time; the exclusive or lets them meet no bank twice.
GPU_FN int staged(int row, int eight) { return (row * 8 + (eight ^ row % 2 * 4)) * 16; }

// What a thread copies of a stage: 8 columns each of rows 32 apart.
template <class T>
struct Source {
  static constexpr int kApart = kThreads / 8;
  const T *weights, *x;   // its first rows, at its first column
  int weight_rows, rows;  // that there are from these rows on
  int column;             // of the stage

  GPU_FN Source(const GroupedProduct& g, const RowTile& tile, std::int64_t first_weight) {
    const int row = static_cast<int>(threadIdx.x) / 8;
    column = static_cast<int>(threadIdx.x) % 8 * 8;
    weights = reinterpret_cast<const T*>(g.weights[tile.group]) + (first_weight + row) * g.columns +
              column;
    x = static_cast<const T*>(g.x) + std::int64_t{tile.first + row} * g.columns + column;
    weight_rows = static_cast<int>(least(g.n - first_weight, kTileWeights)) - row;
    rows = tile.count - row;
  }

  // Columns [column, column + 64) of the block's rows, zeros past the last row and column.
  GPU_FN void fetch(const GroupedProduct& g, int first_column, unsigned char* stage) const {
    const bool inside = first_column + column < g.columns;
    const int row = static_cast<int>(threadIdx.x) / 8;
#pragma unroll
    for (int i = 0; i < kStageRows / kApart; i++) {
      constexpr int kWeights = kTileWeights / kApart;
      const bool of_x = i >= kWeights;
      const int r = (of_x ? i - kWeights : i) * kApart;
      const bool there = inside && r < (of_x ? rows : weight_rows);
      const T* from = (of_x ? x : weights) + first_column + r * g.columns;
      gpu::cp_async16(stage + staged(i * kApart + row, column / 8), there ? from : g.x, there);
    }
  }
};

// One warp's sums of 32 rows of weights by 32 of x: of the slice at hand, and of those before.
struct PlainSums {
  static constexpr int kTiles = 4;
  float slice[2][kTiles][4], total[2][kTiles][4];
  int at;  // the slice

  GPU_FN void close() {
#pragma unroll
    for (int tile = 0; tile < 2; tile++)
#pragma unroll
      for (int i = 0; i < kTiles; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
          float& t = total[tile][i][j];
          t = at == 0 ? slice[tile][i][j] : __fadd_rn(t, slice[tile][i][j]);
          slice[tile][i][j] = 0.0f;
        }
    at++;
  }
};

// Adds a record of a stage. weights, tokens: the warp's first rows there.
template <class T>
GPU_FN void add_staged(const unsigned char* stage, int weights, int tokens, int half,
                       PlainSums& sums) {
  const int lane = threadIdx.x % 32, eight = half * 4 + lane % 4, g = lane / 4;
  uint4 x[PlainSums::kTiles];
#pragma unroll
  for (int i = 0; i < PlainSums::kTiles; i++)
    x[i] = gpu::load16<uint4>(stage + staged(kTileWeights + tokens + i * 8 + g, eight));
#pragma unroll
  for (int tile = 0; tile < 2; tile++) {
    const auto low = gpu::load16<uint4>(stage + staged(weights + tile * 16 + g, eight));
    const auto high = gpu::load16<uint4>(stage + staged(weights + tile * 16 + 8 + g, eight));
    add_plain<T, PlainSums::kTiles>(low, high, x, sums.slice[tile]);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads, 2)
    grouped_plain_many_kernel(GroupedProduct g, const RowTile* tiles) {
  const auto tile = gpu::load16<RowTile>(tiles + blockIdx.y);
  if (tile.count == 0) return;
  unsigned char* stages = gpu::dynamic_shared<unsigned char>();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int weight = warp % 4 * 32, token = warp / 4 * 32;
  const std::int64_t first_weight = std::int64_t{blockIdx.x} * kTileWeights;
  const Source<T> source(g, tile, first_weight);
  const int records = static_cast<int>((g.columns + kRecord - 1) / kRecord);
  const int steps = (records + 1) / 2;
  const auto start = [&](int step) {
    if (step < steps) source.fetch(g, step * kStageColumns, stages + step % kStages * kStageBytes);
    gpu::cp_async_commit();  // an empty group where there is nothing left
  };
  for (int s = 0; s < kStages - 1; s++) start(s);
  PlainSums sums = {};
  for (int step = 0; step < steps; step++) {
    gpu::cp_async_wait<kStages - 2>();
    __syncthreads();
    start(step + kStages - 1);
#pragma unroll 1  // both at once would not fit the registers
    for (int half = 0; half < 2; half++) {
      const int b = step * 2 + half;
      if (b >= records) break;
      while (b == slice_begin(records, sums.at + 1)) sums.close();
      add_staged<T>(stages + step % kStages * kStageBytes, weight, token, half, sums);
    }
  }
  while (sums.at < kSlices) sums.close();
#pragma unroll
  for (int t = 0; t < 2; t++)
#pragma unroll
    for (int i = 0; i < PlainSums::kTiles; i++)
#pragma unroll
      for (int j = 0; j < 4; j++)
        put<T>(g, tile.first, tile.count, token + result_token(lane, i, j),
               first_weight + weight + result_row(lane, t, j), sums.total[t][i][j]);
}

// Whether rows of x and of all weights are multiples of 16 bytes. Weights begin at 256.
bool is_wide(const GroupedProduct& p) {
  return p.columns % 8 == 0 && reinterpret_cast<std::uintptr_t>(p.x) % 16 == 0;
}

template <class T>
cudaError_t launch_few(const GroupedProduct& p, int tokens, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>((p.n + kQuantPanel - 1) / kQuantPanel),
                  static_cast<unsigned>(p.most_used));
  const auto kernel = !is_wide(p)   ? grouped_plain_few_kernel<T, 1, false>
                      : tokens == 8 ? grouped_plain_few_kernel<T, 1, true>
                                    : grouped_plain_few_kernel<T, 2, true>;
  return gpu::launch(kernel, grid, dim3(kGroupThreads), 0, stream, p);
}

template <class T>
cudaError_t launch_many(const GroupedProduct& p, const RowTile* tiles, std::int64_t most,
                        cudaStream_t stream) {
  if (const cudaError_t error =
          gpu::allow_shared(grouped_plain_many_kernel<T>, kStages * kStageBytes);
      error != cudaSuccess)
    return error;
  const dim3 grid(static_cast<unsigned>((p.n + kTileWeights - 1) / kTileWeights),
                  static_cast<unsigned>(most));
  return gpu::launch(grouped_plain_many_kernel<T>, grid, dim3(kThreads), kStages * kStageBytes,
                     stream, p, tiles);
}

}  // namespace

cudaError_t grouped_plain_few(const GroupedProduct& p, int tokens, cudaStream_t stream) {
  return p.in == DType::f16 ? launch_few<__half>(p, tokens, stream)
                            : launch_few<__nv_bfloat16>(p, tokens, stream);
}

cudaError_t grouped_plain_many(const GroupedProduct& p, const RowTile* tiles, std::int64_t most,
                               cudaStream_t stream) {
  if (!is_wide(p)) return grouped_plain_few(p, 16, stream);
  return p.in == DType::f16 ? launch_many<__half>(p, tiles, most, stream)
                            : launch_many<__nv_bfloat16>(p, tiles, most, stream);
}

}  // namespace cohort::cuda
