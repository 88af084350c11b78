// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/weights.h"

#include <algorithm>

#include "kernels/cuda/pack.h"
#include "kernels/cuda/quant_view.h"
#include "kernels/cuda/state.h"

namespace cohort::cuda {
namespace {

// Of stored rows on the host at a time: some of the time is the copy's latency, which this hides.
constexpr int64_t kStagingBytes = int64_t(4) << 20;

int64_t padded(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

// Rows are packed in groups: a panel of quantised weights, one row of plain ones.
struct Target {
  DType held;           // what the GPU holds
  int64_t group;        // rows
  int64_t group_bytes;  // on the GPU
};

Target target_of(Stream& stream, const PartShape& shape) {
  if (is_quantized(shape.dtype))
    return {shape.dtype, kQuantPanel, quant_bytes(shape.dtype, kQuantPanel, shape.columns)};
  const DType held = stream.activations();
  return {held, 1, bytes_of(held, shape.columns)};
}

// Groups `first` .. of the part from `stored`, which holds their rows, to `out`.
void pack_groups(Stream& stream, const PartShape& shape, const Target& target, int64_t rows,
                 const std::byte* stored, std::byte* out) {
  const int64_t groups = padded(rows, target.group) / target.group;
  stream.threads().parallel_for(groups, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) {
      const std::byte* from = stored + bytes_of(shape.dtype, i * target.group * shape.columns);
      std::byte* to = out + i * target.group_bytes;
      if (is_quantized(shape.dtype))
        pack_quant_panel(shape.dtype, shape.columns,
                         int(std::min(target.group, rows - i * target.group)), from, to);
      else
        convert_plain(shape.dtype, from, target.held, to, shape.columns);
    }
  });
}

Status upload_part(Stream& stream, const PartShape& shape, const Target& target,
                   Matrix::ReadRows read, std::byte* to) {
  const int64_t row_bytes = bytes_of(shape.dtype, shape.columns);
  const int64_t at_once = std::clamp<int64_t>(padded(kStagingBytes / row_bytes, target.group),
                                              target.group, padded(shape.rows, target.group));
  const Buffer stored(size_t(at_once * row_bytes));
  const Buffer packed(size_t(at_once / target.group * target.group_bytes));
  for (int64_t begin = 0; begin < shape.rows; begin += at_once) {
    const int64_t end = std::min(shape.rows, begin + at_once);
    COHORT_RETURN_IF_ERROR(read(begin, end, stored.data()));
    pack_groups(stream, shape, target, end - begin, stored.data(), packed.data());
    const int64_t bytes = padded(end - begin, target.group) / target.group * target.group_bytes;
    device(stream).upload(to, packed.data(), size_t(bytes));
    to += bytes;
  }
  return {};
}

bool joins(const std::vector<MatrixPart>& parts, const Target& target) {
  return !parts.empty() && parts.back().dtype == target.held &&
         parts.back().rows % target.group == 0;
}

// Moves what the part holds to a buffer with room for `bytes` more.
void grow(Stream& stream, MatrixPart& part, size_t bytes) {
  CudaDevice& gpu = device(stream);
  Buffer larger = gpu.allocate(part.packed.size() + bytes);
  cuda_check(cudaMemcpyAsync(larger.data(), part.packed.data(), part.packed.size(),
                             cudaMemcpyDeviceToDevice, gpu.compute()),
             "cudaMemcpyAsync");
  cuda_check(cudaStreamSynchronize(gpu.compute()), "cudaStreamSynchronize");
  part.packed = std::move(larger);
}

}  // namespace

int64_t part_bytes(DType dtype, int64_t rows, int64_t columns) {
  return is_quantized(dtype) ? quant_bytes(dtype, rows, columns) : bytes_of(dtype, rows * columns);
}

Status add_part(Stream& stream, std::vector<MatrixPart>& parts, const PartShape& shape,
                Matrix::ReadRows read) {
  const Target target = target_of(stream, shape);
  const auto bytes = size_t(part_bytes(target.held, shape.rows, shape.columns));
  if (bytes == 0) {
    if (parts.empty()) parts.push_back({target.held, shape.rows, Buffer()});
    return {};
  }
  device(stream).use();
  MatrixPart fresh{target.held, shape.rows, Buffer()};
  const bool join = joins(parts, target);
  MatrixPart& part = join ? parts.back() : fresh;
  const size_t before = join ? part.packed.size() : 0;
  if (join)
    grow(stream, part, bytes);
  else
    part.packed = device(stream).allocate(bytes);
  COHORT_RETURN_IF_ERROR(upload_part(stream, shape, target, read, part.packed.data() + before));
  if (join)
    part.rows += shape.rows;
  else
    parts.push_back(std::move(fresh));
  return {};
}

size_t quantized_bytes(int64_t rows, int64_t columns) {
  return size_t(rows * (columns + columns / 32 * 8));
}

}  // namespace cohort::cuda
