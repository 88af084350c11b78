// SPDX-License-Identifier: Apache-2.0
#include "kernels/matrix.h"

#include <algorithm>
#include <memory>

#include "kernels/cuda/weights.h"
#include "kernels/packed.h"

namespace cohort {
namespace {

// Stored rows wait here between reading and packing; a few MiB amortise the hand-over to the
// threads and are small beside any part that matters.
constexpr int64_t kStagingBytes = int64_t(4) << 20;

Status check_part(DType dtype, int64_t rows, int64_t columns, int64_t unit_columns) {
  if (dtype == DType::i32 || dtype == DType::i8 || dtype == DType::f8_e4m3)
    return invalid_argument(concat("weights of type ", name(dtype), " are not supported"));
  if (rows < 0 || columns < 0)
    return invalid_argument(concat("a matrix of ", rows, " x ", columns, " is impossible"));
  if (columns % unit_columns != 0)
    return invalid_argument(concat(columns, " columns are not a whole number of units of ",
                                   unit_columns, ": choose units that divide them"));
  if (columns / unit_columns > kMaxUnits)
    return invalid_argument(concat(columns / unit_columns, " units of ", unit_columns,
                                   " columns are more than ", kMaxUnits, ": use larger units"));
  const int64_t block = info(dtype).block_elements;
  if (unit_columns % block != 0 || columns % block != 0)
    return invalid_argument(concat("blocks of ", block, " columns of ", name(dtype),
                                   " would be cut by ", columns, " columns in units of ",
                                   unit_columns, ": use units of whole blocks"));
  return {};
}

}  // namespace

Status Matrix::add_part(Stream& stream, DType dtype, int64_t rows, ReadRows read) {
  COHORT_RETURN_IF_ERROR(check_part(dtype, rows, columns_, std::max<int64_t>(unit_columns(), 1)));
  if (stream.kind() == DeviceKind::cuda)
    return cuda::add_part(stream, parts_, {dtype, rows, columns_}, read);
  const int64_t stride = panel_bytes(dtype, columns_), row_bytes = bytes_of(dtype, columns_);
  MatrixPart part{dtype, rows, Buffer(size_t(cohort::packed_bytes(dtype, rows, columns_)))};
  if (part.packed.size() > 0) {
    const int64_t panels_at_once =
        std::clamp<int64_t>(kStagingBytes / (row_bytes * kPanelRows), 1, (rows + 15) / 16);
    const Buffer staging(size_t(panels_at_once * kPanelRows * row_bytes));
    for (int64_t first = 0; first * kPanelRows < rows; first += panels_at_once) {
      const int64_t begin = first * kPanelRows;
      const int64_t end = std::min(rows, begin + panels_at_once * kPanelRows);
      COHORT_RETURN_IF_ERROR(read(begin, end, staging.data()));
      stream.threads().parallel_for(
          (end - begin + kPanelRows - 1) / kPanelRows, [&](int64_t p0, int64_t p1) {
            for (int64_t p = p0; p < p1; p++)
              pack_panel(dtype, columns_,
                         int(std::min<int64_t>(kPanelRows, end - begin - p * kPanelRows)),
                         staging.data() + p * kPanelRows * row_bytes,
                         part.packed.data() + (first + p) * stride);
          });
    }
  }
  parts_.push_back(std::move(part));
  return {};
}

int64_t Matrix::rows() const {
  int64_t n = 0;
  for (const MatrixPart& part : parts_) n += part.rows;
  return n;
}

int64_t Matrix::packed_bytes() const {
  int64_t n = 0;
  for (const MatrixPart& part : parts_) n += int64_t(part.packed.size());
  return n;
}

}  // namespace cohort
