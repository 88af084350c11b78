// SPDX-License-Identifier: Apache-2.0
// Products of a group of matrices: which kernel takes them. All of them read on the device how many
// rows each matrix has; the choice is by what the host knows, the most rows that there could be,
// and changes no bit.
#include "kernels/cuda/grouped.h"

#include <algorithm>
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
  out.most_used = int32_t(std::min<int64_t>(x.dim(0), w.size()));
  return out;
}

// How the parts of quantised, or plain, weights are multiplied.
enum class Way { tensor, int8, exact };
Way way_of(const Tensor& x, const Activations& scratch, bool quantised) {
  if (quantised && scratch.mode() == ActivationMode::int8) return Way::int8;
  const bool f32 = x.dtype() == DType::f32 || (quantised && scratch.mode() == ActivationMode::f32);
  return f32 ? Way::exact : Way::tensor;
}

// One product of a group.
struct Call {
  Stream& stream;
  int64_t rows;  // of x
  Int8Rows int8;
  RowTile* tiles = nullptr;  // for many rows
  int64_t most = 0;

  cudaError_t run(const GroupedProduct& p, Way way, bool quantised) const {
    const cudaStream_t on = compute(stream);
    if (way == Way::exact) return grouped_exact(p, quantised, on);
    if (tiles != nullptr) {
      if (way == Way::int8) return grouped_int8_many(p, int8, tiles, most, on);
      return quantised ? grouped_quant_many(p, tiles, most, on)
                       : grouped_plain_many(p, tiles, most, on);
    }
    if (way == Way::int8) return grouped_int8_few(p, int8, on);
    const int tokens = rows <= kFewest * p.groups ? 8 : 16;
    return quantised ? grouped_quant_few(p, tokens, on) : grouped_plain_few(p, tokens, on);
  }
};

void start_int8(Call& call, const Tensor& x, Activations& scratch) {
  call.int8 = int8_rows(scratch.storage().data(), call.rows, x.dim(1));
  cuda_check(
      quantize_rows(x.data(), x.dtype(), call.rows, x.dim(1), call.int8, compute(call.stream)),
      "quantize_rows");
}

void start_tiles(Call& call, const MatrixGroup& w, const Tensor& offsets) {
  call.most = most_tiles(call.rows, w.size());
  const size_t bytes = size_t(call.most) * sizeof(RowTile);
  call.tiles = reinterpret_cast<RowTile*>(state(call.stream).scratch(bytes));
  cuda_check(list_tiles(offsets.i32(), w.size(), call.tiles, call.most, compute(call.stream)),
             "list_tiles");
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
  const std::vector<MatrixPart>& parts = w.matrices.front().parts();
  bool int8 = false, exact = true;
  for (const MatrixPart& part : parts) {
    const Way way = way_of(x, scratch, is_quantized(part.dtype));
    int8 |= way == Way::int8;
    exact &= way == Way::exact;
  }
  Call call{stream, x.dim(0), {}};
  if (int8) start_int8(call, x, scratch);
  if (!exact && call.rows > kFew * w.size()) start_tiles(call, w, offsets);
  int64_t first_row = 0;
  for (size_t i = 0; i < parts.size(); first_row += parts[i++].rows) {
    if (parts[i].rows == 0) continue;
    const bool quantised = is_quantized(parts[i].dtype);
    cuda_check(
        call.run(product(y, x, w, offsets, i, first_row), way_of(x, scratch, quantised), quantised),
        "grouped_matmul");
  }
}

}  // namespace cohort::ops::cuda
