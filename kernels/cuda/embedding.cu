// SPDX-License-Identifier: Apache-2.0
// Rows of the table of tokens. Bytes per element: that of the table + 4, no arithmetic: bound by
// memory.
#include "kernels/cuda/elements.h"
#include "kernels/cuda/state.h"
#include "kernels/ops.h"

namespace cohort::cuda {
namespace {

constexpr unsigned kThreads = 256;

struct Range {  // of ids that the table holds
  int64_t first_row, rows;
};

// A block has a piece of row blockIdx.x of the output. Adding +0 turns -0 into +0.
template <class T, int kN>
__global__ void __launch_bounds__(kThreads)
    look_up(float* out, const T* table, const int32_t* ids, Range range, int width) {
  const int at = int(blockIdx.y * blockDim.x + threadIdx.x) * kN;
  if (at >= width) return;
  const int64_t row = ids[blockIdx.x] - range.first_row;
  float v[kN] = {};
  if (row >= 0 && row < range.rows) load_run<kN>(table + row * width + at, v);
#pragma unroll
  for (int i = 0; i < kN; i++) v[i] += 0.0f;
  store_run<kN>(out + int64_t(blockIdx.x) * width + at, v);
}

template <class T>
cudaError_t launch_look_up(cudaStream_t stream, const Tensor& out, const MatrixPart& part,
                           const Tensor& ids, int64_t first_row) {
  const int width = int(out.dim(1));
  const bool wide = is_wide(width);
  const int pieces = wide ? width / kRun : width;
  const unsigned threads = threads_for(pieces, kThreads);
  return gpu::launch(wide ? look_up<T, kRun> : look_up<T, 1>,
                     dim3(unsigned(out.dim(0)), divide_up(pieces, threads)), dim3(threads), 0,
                     stream, out.f32(), part.packed.as<const T>(), ids.i32(),
                     Range{first_row, part.rows}, width);
}

}  // namespace
}  // namespace cohort::cuda

namespace cohort::ops::cuda {
using namespace cohort::cuda;

void embedding(Stream& stream, Tensor out, const Matrix& table, Tensor ids, int64_t first_row) {
  if (out.elements() == 0) return;
  COHORT_CHECK_EQ(table.parts().size(), size_t(1));
  const MatrixPart& part = table.parts()[0];
  for_float_type(part.dtype, [&]<class T>(T*) {
    cuda_check(launch_look_up<T>(compute(stream), out, part, ids, first_row), "embedding");
  });
}

}  // namespace cohort::ops::cuda
