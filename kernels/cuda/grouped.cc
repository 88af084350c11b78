// SPDX-License-Identifier: Apache-2.0
// Products of a group of matrices: which kernel takes them. All of them read on the device how many
// rows each matrix has; the choice is by what the host knows, the most rows that there could be,
// and changes no bit.
#include "kernels/cuda/grouped.h"

#include <vector>

#include "base/check.h"
#include "kernels/cuda/grouped_product.h"
#include "kernels/cuda/state.h"
#include "kernels/ops.h"

namespace cohort::cuda {
namespace {

// Rows of x for each matrix, on average, up to which a block takes 8 or 16 of them at once.
constexpr int64_t kFewest = 4, kFew = 16;

// One kernel serves a part of all matrices, so they must be alike.
void check_alike(Stream& stream, const MatrixGroup& group) {
  const Matrix& first = group.matrices.front();
  for (const Matrix& m : group.matrices) {
    COHORT_CHECK_EQ(m.units(), 1);
    COHORT_CHECK_EQ(m.columns(), first.columns());
    bool alike = m.parts().size() == first.parts().size();
    for (size_t p = 0; alike && p < m.parts().size(); p++)
      alike = m.parts()[p].dtype == first.parts()[p].dtype &&
              m.parts()[p].rows == first.parts()[p].rows;
    if (!alike)
      throw Failure(unimplemented(
          "the experts of a layer have weights of different types; on a GPU all must have the "
          "same: quantise the checkpoint evenly"));
  }
  for (const MatrixPart& part : first.parts())
    COHORT_CHECK(is_quantized(part.dtype) || part.dtype == stream.activations());
}

GroupedProduct product(const Tensor& y, const Tensor& x, const MatrixGroup& w,
                       const Tensor& offsets, size_t part, int64_t first_row) {
  const MatrixPart& p = w.matrices.front().parts()[part];
  GroupedProduct out{};
  if (is_quantized(p.dtype)) out.w = quant_view(p.dtype, w.columns(), nullptr);
  out.weights = w.table.as<const unsigned char*>() + part * w.matrices.size();
  out.offsets = offsets.i32();
  out.x = x.data();
  out.y = y.as<std::byte>() + bytes_of(y.dtype(), first_row);
  out.in = x.dtype();
  out.n = p.rows;
  out.columns = w.columns();
  out.y_stride = w.rows();
  out.groups = w.size();
  return out;
}

cudaError_t multiply_few(const GroupedProduct& p, bool quantised, int tokens, cudaStream_t stream) {
  return quantised ? grouped_quant_few(p, tokens, stream) : grouped_plain_few(p, tokens, stream);
}

cudaError_t multiply_many(const GroupedProduct& p, bool quantised, int64_t most, RowTile* tiles,
                          cudaStream_t stream) {
  return quantised ? grouped_quant_many(p, tiles, most, stream)
                   : grouped_plain_many(p, tiles, most, stream);
}

}  // namespace

void prepare_group(Stream& stream, MatrixGroup& group) {
  if (group.matrices.empty()) return;
  check_alike(stream, group);
  std::vector<const std::byte*> table;
  for (size_t p = 0; p < group.matrices.front().parts().size(); p++)
    for (const Matrix& m : group.matrices) table.push_back(m.parts()[p].packed.data());
  const size_t bytes = table.size() * sizeof table[0];
  // Kept where it is as long as it suffices: captured steps read it there.
  if (group.table.size() < bytes) group.table = device(stream).allocate(bytes);
  device(stream).upload(group.table.data(), table.data(), bytes);
}

}  // namespace cohort::cuda

namespace cohort::ops::cuda {
using namespace cohort::cuda;

void grouped_matmul(Stream& stream, Tensor y, Tensor x, const MatrixGroup& w, Tensor offsets,
                    Activations& scratch) {
  const int64_t rows = x.dim(0), groups = w.size();
  const bool many = rows > kFew * groups && x.dtype() != DType::f32;
  const int64_t most = many ? most_tiles(rows, groups) : 0;
  RowTile* tiles = nullptr;
  if (many) {
    tiles = reinterpret_cast<RowTile*>(state(stream).scratch(size_t(most) * sizeof(RowTile)));
    cuda_check(list_tiles(offsets.i32(), w.size(), tiles, most, compute(stream)), "list_tiles");
  }
  const std::vector<MatrixPart>& parts = w.matrices.front().parts();
  int64_t first_row = 0;
  for (size_t part = 0; part < parts.size(); first_row += parts[part++].rows) {
    if (parts[part].rows == 0) continue;
    const GroupedProduct p = product(y, x, w, offsets, part, first_row);
    const bool quantised = is_quantized(parts[part].dtype);
    const bool exact =
        x.dtype() == DType::f32 || (quantised && scratch.mode() == ActivationMode::f32);
    const cudaError_t error =
        exact  ? grouped_exact(p, quantised, compute(stream))
        : many ? multiply_many(p, quantised, most, tiles, compute(stream))
               : multiply_few(p, quantised, rows <= kFewest * groups ? 8 : 16, compute(stream));
    cuda_check(error, "grouped_matmul");
  }
}

}  // namespace cohort::ops::cuda
