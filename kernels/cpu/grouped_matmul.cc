// SPDX-License-Identifier: Apache-2.0
// Rows that are shared out among matrices. Threads take items of work as they get done: groups
// differ in rows, and the fewest regions of the pool are best where each has a row or two.
#include <algorithm>
#include <atomic>

#include "base/check.h"
#include "kernels/cpu/isa_table.h"
#include "kernels/cpu/matmul_part.h"
#include "kernels/cpu/state.h"
#include "kernels/ops.h"

namespace cohort::ops::cpu {
namespace {

using cohort::cpu::panels;

// An item: some panels of one part, by all rows of its group.
struct Item {
  int group;
  const MatrixPart* part;
  int64_t column;  // first output of the part
  UnitRange panels;
};

// Panels by rows of all groups.
int64_t all_work(const MatrixGroup& w, const int32_t* offsets) {
  int64_t sum = 0;
  for (int g = 0; g < w.size(); g++)
    for (const MatrixPart& part : w.matrices[size_t(g)].parts())
      sum += panels(part) * (offsets[g + 1] - offsets[g]);
  return sum;
}

// The items by number, found anew by every thread, which spares a list of them.
class Items {
 public:
  // share: of all work, what an item should not exceed.
  Items(const MatrixGroup& w, const int32_t* offsets, int64_t share)
      : w_(w), offsets_(offsets), share_(share) {}

  // Numbers must ascend from call to call. False: there are fewer.
  bool find(int64_t number, Item& item) {
    for (; group_ < w_.size(); group_++, part_ = 0, column_ = 0) {
      const std::vector<MatrixPart>& parts = w_.matrices[size_t(group_)].parts();
      const int64_t rows = offsets_[group_ + 1] - offsets_[group_];
      for (; rows > 0 && part_ < parts.size(); column_ += parts[part_++].rows) {
        const MatrixPart& part = parts[part_];
        const int64_t all = panels(part), some = panels_at_once(part, rows);
        const int64_t items = (all + some - 1) / some, begin = (number - first_) * some;
        if (number < first_ + items) {
          item = {group_, &part, column_, {int(begin), int(std::min(begin + some, all))}};
          return true;
        }
        first_ += items;
      }
    }
    return false;
  }

 private:
  // Four panels are what the kernels of plain weights go through side by side, and on AMX rows are
  // made ready for tiles once for all panels of an item. With few rows a panel is read once: in
  // pieces long enough to be a stream.
  int64_t panels_at_once(const MatrixPart& part, int64_t rows) const {
    constexpr int64_t kManyRows = 16, kItemBytes = 64 << 10, kSide = 4;
    if (rows >= kManyRows) return rows * kSide <= share_ ? kSide : 1;
    return std::max(kItemBytes / panel_bytes(part.dtype, w_.columns()) / kSide * kSide, kSide);
  }

  const MatrixGroup& w_;
  const int32_t* offsets_;
  const int64_t share_;
  int group_ = 0;
  size_t part_ = 0;
  int64_t column_ = 0;
  int64_t first_ = 0;  // item of the part
};

// The rows from `row` on. More than the rest of its tile only where it is a tile's first.
QuantizedRows rows_from(const QuantizedRows& x, int64_t row) {
  const RowTile tile = row_tile(x, row / kRowTile);
  const int64_t r = row % kRowTile, slot = row / kRowTile * kRowTile * x.blocks + r;
  return {const_cast<int8_t*>(tile.q) + r * 32,
          x.d + slot,
          x.s + slot,
          x.sum + slot,
          x.blocks,
          x.stored,
          x.tiled && r == 0 ? x.tiled + slot * 32 : nullptr};
}

// job: of all rows, from the first.
void multiply(const CpuKernels& kernels, const MatmulJob& all, const Item& item, int64_t begin,
              int64_t end) {
  const auto rows = [&](int64_t from, int64_t to, UnitRange panels) {
    MatmulJob job = all;
    cohort::cpu::set_part(job, *item.part, job.columns);
    job.rows = to - from;
    job.x += from * job.columns;
    job.y += from * job.stride + item.column;
    if (job.int8 && job.quantized) job.q = rows_from(all.q, from);
    if (job.bf16.wide) job.bf16 = rows_from(all.bf16, from);
    cohort::cpu::kernel_of(kernels, job)(job, panels.begin, panels.end);
  };
  // Tiles of int8 rows know nothing of groups: those that begin within one are cut at its end, and
  // a panel goes by both before the next, while it is in the cache.
  const int64_t cut = (begin + kRowTile - 1) / kRowTile * kRowTile;
  const bool tiles = all.int8 && is_quantized(item.part->dtype);
  if (!tiles || cut == begin || cut >= end) return rows(begin, end, item.panels);
  for (int p = item.panels.begin; p < item.panels.end; p++) {
    rows(begin, cut, {p, p + 1});
    rows(cut, end, {p, p + 1});
  }
}

void check(const MatrixGroup& w, const int32_t* offsets, int64_t rows) {
  COHORT_CHECK_LE(0, offsets[0]);
  for (int g = 0; g < w.size(); g++) COHORT_CHECK_LE(offsets[g], offsets[g + 1]);
  COHORT_CHECK_LE(offsets[w.size()], rows);
}

// Whether anything but f32 is multiplied.
bool wants_prepared(const MatrixGroup& w, ActivationMode mode) {
  for (const Matrix& m : w.matrices)
    for (const MatrixPart& part : m.parts()) {
      if (is_quantized(part.dtype) && wants_int8(mode)) return true;
      if (part.dtype == DType::bf16 && mode == ActivationMode::bf16) return true;
    }
  return false;
}

}  // namespace

void grouped_matmul(Stream& stream, Tensor y, Tensor x, const MatrixGroup& w, Tensor offsets,
                    Activations& scratch) {
  const int32_t* at = offsets.i32();
  check(w, at, x.dim(0));
  const int64_t rows = at[w.size()], columns = w.columns();
  if (rows == at[0] || y.dim(1) == 0) return;
  MatmulJob job{};
  job.columns = job.unit_columns = job.end = columns;
  job.x = x.f32();
  job.y = y.f32();
  job.stride = y.dim(1);
  job.int8 = wants_int8(scratch.mode());
  if (wants_prepared(w, scratch.mode())) {
    prepare(stream, scratch, x.slice_rows(0, rows));
    job.q = quantized_rows(scratch.storage().data(), rows, columns);
    if (scratch.mode() == ActivationMode::bf16)
      job.bf16 = bf16_rows(scratch.storage().data(), rows, columns);
  }
  auto& state = cohort::cpu::State::of(stream);
  state.reserve(cohort::cpu::scratch_bytes(job, stream.isa()));
  job.bf16_tiles = job.bf16.wide && state.bf16_tiles(stream.isa());
  const CpuKernels& kernels = cpu_kernels(stream.isa());
  constexpr int64_t kItemsPerThread = 8;
  const int64_t share = all_work(w, at) / (kItemsPerThread * stream.threads().size());
  std::atomic<int64_t> next{0};
  stream.threads().run([&](int thread) {
    MatmulJob mine = job;
    mine.scratch = reinterpret_cast<float*>(state.scratch(thread));
    Items items(w, at, share);
    for (Item item; items.find(next.fetch_add(1, std::memory_order_relaxed), item);)
      multiply(kernels, mine, item, at[item.group], at[item.group + 1]);
  });
}

}  // namespace cohort::ops::cpu
