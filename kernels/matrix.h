// SPDX-License-Identifier: Apache-2.0
// A weight matrix [rows, columns] as the kernels want it: one or more parts stacked by rows (q, k
// and v; gate and up), each with its own dtype, packed into panels of 16 output rows
// (docs/arithmetic.md section 2), or in the forms of kernels/cuda/weights.h on a GPU. Built once at
// load; immutable afterwards; any thread may read.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/buffer.h"
#include "base/dtype.h"
#include "base/function_ref.h"
#include "base/status.h"
#include "base/stream.h"

namespace cohort {

struct MatrixPart {
  DType dtype;  // as stored in the checkpoint; on a GPU what `packed` holds
  int64_t rows = 0;
  Buffer packed;  // CPU: panels back to back, rows padded to 16; GPU: kernels/cuda/weights.h
};

class Matrix {
 public:
  // Copies rows [begin, end) of the part in its stored dtype to out, row after row.
  using ReadRows = FunctionRef<Status(int64_t begin, int64_t end, std::byte* out)>;

  Matrix() = default;
  // unit_columns: K is cut into units of so many columns; each is one chain of additions, and unit
  // sums are added in the fixed tree. 0: one chain over all of K (column-parallel layers).
  // A multiple of the block of every part's dtype, and of 32 where a part is quantised.
  Matrix(int64_t columns, int64_t unit_columns) : columns_(columns), unit_columns_(unit_columns) {}

  // Reads and packs a few panels at a time: memory stays at one copy of the part.
  Status add_part(Stream& stream, DType dtype, int64_t rows, ReadRows read);

  int64_t rows() const;  // of all parts
  int64_t columns() const { return columns_; }
  int64_t unit_columns() const { return unit_columns_ > 0 ? unit_columns_ : columns_; }
  int units() const { return columns_ == 0 ? 0 : int(columns_ / unit_columns()); }
  const std::vector<MatrixPart>& parts() const { return parts_; }
  int64_t packed_bytes() const;
  // Another rank's packed parts, received whole (tied tables across pipeline stages).
  void adopt_part(MatrixPart part) { parts_.push_back(std::move(part)); }

 private:
  int64_t columns_ = 0, unit_columns_ = 0;
  std::vector<MatrixPart> parts_;
};

// Size of a part's packed form.
int64_t packed_bytes(DType dtype, int64_t rows, int64_t columns);

}  // namespace cohort
