// SPDX-License-Identifier: Apache-2.0
#include "kernels/matrix.h"

#include <algorithm>
#include <memory>

#include "kernels/cuda/weights.h"
#include "kernels/packed.h"

namespace cohort {
namespace {

// Stored rows that a thread reads before it packs them: they stay in its cache.
constexpr int64_t kStagingBytes = int64_t(96) << 10;

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

// A part that has a place and is to be packed there.
struct PartJob {
  const Matrix::PartSource* source;
  std::byte* panels;
  int64_t begin;  // of the part in the bytes of all parts
};

// One thread's work.
class PanelPacker {
 public:
  PanelPacker(int64_t columns, PanelShare share) : columns_(columns), share_(share) {}

  Status pack(const PartJob& job) {
    const int64_t rows = job.source->rows, stride = panel_bytes(job.source->dtype, columns_);
    const int64_t count = (rows + kPanelRows - 1) / kPanelRows;
    if (stride == 0) return {};
    const int64_t first = PanelShare::first(share_.begin, job.begin, stride, count);
    const int64_t last = PanelShare::first(share_.end, job.begin, stride, count);
    const int64_t panel_stored = kPanelRows * bytes_of(job.source->dtype, columns_);
    const int64_t at_once = std::max<int64_t>(1, kStagingBytes / panel_stored);
    for (int64_t p = first; p < last; p += at_once)
      COHORT_RETURN_IF_ERROR(pack_some(job, p, std::min(last, p + at_once), panel_stored));
    return {};
  }

 private:
  Status pack_some(const PartJob& job, int64_t first, int64_t last, int64_t panel_stored) {
    reserve(size_t((last - first) * panel_stored));
    const Matrix::PartSource& source = *job.source;
    const int64_t end = std::min(source.rows, last * kPanelRows);
    COHORT_RETURN_IF_ERROR(source.read(first * kPanelRows, end, staging_.get()));
    for (int64_t p = first; p < last; p++)
      pack_panel(source.dtype, columns_, int(std::min<int64_t>(kPanelRows, end - p * kPanelRows)),
                 staging_.get() + (p - first) * panel_stored,
                 job.panels + p * panel_bytes(source.dtype, columns_));
    return {};
  }

  void reserve(size_t bytes) {
    if (bytes <= reserved_) return;
    staging_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
    reserved_ = bytes;
  }

  const int64_t columns_;
  const PanelShare share_;
  std::unique_ptr<std::byte[]> staging_;
  size_t reserved_ = 0;
};

// What is to be packed where.
struct Placed {
  std::vector<MatrixPart> parts;
  std::vector<PartJob> jobs;
  int64_t bytes = 0;
};

Placed place_parts(std::span<const Matrix::PartSource> sources, int64_t columns, PartStore* store) {
  Placed placed;
  for (const Matrix::PartSource& source : sources) {
    const int64_t size = packed_bytes(source.dtype, source.rows, columns);
    PartStore::Place place;
    if (store != nullptr)
      place = store->place(source.name, source.dtype, source.rows, columns);
    else
      place.memory = Buffer(size_t(size));
    if (!place.packed) placed.jobs.push_back({&source, place.memory.data(), placed.bytes});
    placed.parts.push_back({source.dtype, source.rows, std::move(place.memory)});
    placed.bytes += size;
  }
  return placed;
}

Status pack(Stream& stream, const Placed& placed, int64_t columns) {
  const int threads = stream.threads().size();
  std::vector<Status> results(static_cast<size_t>(threads));
  stream.threads().run([&](int thread) {
    PanelPacker packer(columns, PanelShare::of(placed.bytes, thread, threads));
    Status& result = results[size_t(thread)];
    for (const PartJob& job : placed.jobs)
      if (result.ok()) result = packer.pack(job);
  });
  for (const Status& status : results) COHORT_RETURN_IF_ERROR(status);
  return {};
}

}  // namespace

Status Matrix::add_parts(Stream& stream, std::span<const PartSource> sources, PartStore* store) {
  for (const PartSource& source : sources)
    COHORT_RETURN_IF_ERROR(
        check_part(source.dtype, source.rows, columns_, std::max<int64_t>(unit_columns(), 1)));
  if (stream.kind() == DeviceKind::cuda) {
    for (const PartSource& s : sources)
      COHORT_RETURN_IF_ERROR(cuda::add_part(stream, parts_, {s.dtype, s.rows, columns_}, s.read));
    return {};
  }
  Placed placed = place_parts(sources, columns_, store);
  if (!placed.jobs.empty()) COHORT_RETURN_IF_ERROR(pack(stream, placed, columns_));
  for (MatrixPart& part : placed.parts) parts_.push_back(std::move(part));
  return {};
}

Status Matrix::add_part(Stream& stream, DType dtype, int64_t rows, ReadRows read) {
  const PartSource source{"", dtype, rows, read};
  return add_parts(stream, {&source, 1}, nullptr);
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
