// SPDX-License-Identifier: Apache-2.0
// A weight matrix [rows, columns] as the kernels want it: one or more parts stacked by rows (q, k
// and v; gate and up), each with its own dtype, packed into panels of 16 output rows
// (docs/arithmetic.md section 2), or in the forms of kernels/cuda/weights.h on a GPU. Built once at
// load; immutable afterwards; any thread may read.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
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

// Where the packed parts of a CPU's matrices are kept. Used by one thread at a time.
class PartStore {
 public:
  struct Place {
    Buffer memory;        // of packed_bytes(); may be a view of what the store keeps
    bool packed = false;  // it holds the part already
  };
  virtual ~PartStore() = default;
  // For the part of that name. Throws std::bad_alloc.
  virtual Place place(std::string_view name, DType dtype, int64_t rows, int64_t columns) = 0;
};

class Matrix {
 public:
  // Copies rows [begin, end) of the part in its stored dtype to out, row after row. On a CPU called
  // by several threads at once.
  using ReadRows = FunctionRef<Status(int64_t begin, int64_t end, std::byte* out)>;
  struct PartSource {
    std::string_view name;  // for the store alone
    DType dtype;
    int64_t rows;
    ReadRows read;
  };

  Matrix() = default;
  // unit_columns: K is cut into units of so many columns; each is one chain of additions, and unit
  // sums are added in the fixed tree. 0: one chain over all of K (column-parallel layers).
  // A multiple of the block of every part's dtype, and of 32 where a part is quantised.
  Matrix(int64_t columns, int64_t unit_columns) : columns_(columns), unit_columns_(unit_columns) {}

  // Reads and packs parts, all of them or none, with the stream's threads: each thread the panels
  // that it will read in a product if these are all parts, so that their pages are near it. A few
  // panels at a time: memory stays at one copy. store: where they are kept; null: by themselves.
  Status add_parts(Stream& stream, std::span<const PartSource> sources, PartStore* store);
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

// Thread t of a product takes the panels whose first byte lies in its share of all parts' bytes:
// parts of different types balance, and a thread reads its panels as one stream.
struct PanelShare {
  int64_t begin, end;  // bytes of the matrix

  static PanelShare of(int64_t bytes, int64_t thread, int64_t threads) {
    return {bytes * thread / threads, bytes * (thread + 1) / threads};
  }
  // The first panel of a part, of `count`, that begins at `at` or after it.
  static int64_t first(int64_t at, int64_t part_begin, int64_t panel_bytes, int64_t count) {
    const int64_t panel = (at - part_begin + panel_bytes - 1) / panel_bytes;
    return panel < 0 ? 0 : panel < count ? panel : count;
  }
};

}  // namespace cohort
