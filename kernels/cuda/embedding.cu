// SPDX-License-Identifier: Apache-2.0
// Rows of the table of tokens. Bytes per element: that of the table + 4, no arithmetic worth
// counting: bound by memory.
#include "kernels/cuda/elements.h"
#include "kernels/cuda/quant_layout.h"
#include "kernels/cuda/state.h"
#include "kernels/ops.h"

namespace cohort::cuda {
namespace {

constexpr unsigned kThreads = 256;

struct Range {  // of ids that the table holds
  int64_t first_row, rows;
};

// What a part holds: kN columns of a row as f32.
template <class T>
struct PlainTable {
  const T* data;
  int64_t width;
  template <int kN>
  GPU_FN void load(int64_t row, int at, float* v) const {
    load_run<kN>(data + row * width + at, v);
  }
};
struct QuantTable {
  QuantView view;
  template <int kN>
  GPU_FN void load(int64_t row, int at, float* v) const {
#pragma unroll
    for (int i = 0; i < kN; i++) v[i] = quant_value(view, row, at + i);
  }
};

// A block has a piece of row blockIdx.x of the output. Adding +0 turns -0 into +0.
template <class Table, int kN>
__global__ void __launch_bounds__(kThreads)
    look_up(float* out, Table table, const int32_t* ids, Range range, int width) {
  const int at = int(blockIdx.y * blockDim.x + threadIdx.x) * kN;
  if (at >= width) return;
  const int64_t row = ids[blockIdx.x] - range.first_row;
  float v[kN] = {};
  if (row >= 0 && row < range.rows) table.template load<kN>(row, at, v);
#pragma unroll
  for (int i = 0; i < kN; i++) v[i] += 0.0f;
  store_run<kN>(out + int64_t(blockIdx.x) * width + at, v);
}

template <class Table>
void launch_look_up(Stream& stream, const Tensor& out, const Table& table, const Tensor& ids,
                    const Range& range) {
  const int width = int(out.dim(1));
  const bool wide = is_wide(width);
  const int pieces = wide ? width / kRun : width;
  const unsigned threads = threads_for(pieces, kThreads);
  cuda_check(gpu::launch(wide ? look_up<Table, kRun> : look_up<Table, 1>,
                         dim3(unsigned(out.dim(0)), divide_up(pieces, threads)), dim3(threads), 0,
                         compute(stream), out.f32(), table, ids.i32(), range, width),
             "embedding");
}

}  // namespace
}  // namespace cohort::cuda

namespace cohort::ops::cuda {
using namespace cohort::cuda;

void embedding(Stream& stream, Tensor out, const Matrix& table, Tensor ids, int64_t first_row) {
  if (out.elements() == 0) return;
  COHORT_CHECK_EQ(table.parts().size(), size_t(1));
  const MatrixPart& part = table.parts()[0];
  const int64_t columns = table.columns();
  const Range range{first_row, part.rows};
  if (is_quantized(part.dtype)) {
    const QuantTable quantized{quant_view(part.dtype, columns, part.packed.data())};
    return launch_look_up(stream, out, quantized, ids, range);
  }
  for_float_type(part.dtype, [&]<class T>(T*) {
    const PlainTable<T> plain{part.packed.as<const T>(), columns};
    launch_look_up(stream, out, plain, ids, range);
  });
}

}  // namespace cohort::ops::cuda
