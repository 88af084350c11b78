// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>

#include "kernels/cpu/isa_table.h"
#include "kernels/cpu/matmul_part.h"
#include "kernels/cpu/state.h"
#include "kernels/ops.h"

namespace cohort::ops::cpu {
namespace {

using cohort::cpu::kernel_of;

// From so many rows on arithmetic takes longer than reading the weights, and chunks of rows are
// never smaller.
constexpr int64_t kManyRows = 64;
// Panels of an item of work: as many as the kernels of plain weights go through side by side.
constexpr int64_t kItemPanels = 4;

// With few rows a thread takes its share of the panels. job: of a piece.
void run_share(const CpuKernels& kernels, MatmulJob job, const Matrix& w, PanelShare share) {
  int64_t part_begin = 0;
  for (const MatrixPart& part : w.parts()) {
    cohort::cpu::set_part(job, part, w.columns());
    const auto first = [&](int64_t at) {
      return PanelShare::first(at, part_begin, job.panel_bytes, cohort::cpu::panels(part));
    };
    const int64_t p0 = first(share.begin), p1 = first(share.end);
    if (p0 < p1) kernel_of(kernels, job)(job, p0, p1);
    part_begin += int64_t(part.packed.size());
    job.y += part.rows;
  }
}

// Rows [begin, end) of a job; begin: of a tile.
MatmulJob of_rows(MatmulJob job, int64_t begin, int64_t end) {
  const int64_t slots = begin * job.q.blocks;
  job.rows = end - begin;
  job.x += begin * job.columns;
  job.y += begin * job.stride;
  if (job.q.q) {
    job.q.q += slots * kQuantBlock;
    job.q.d += slots;
    job.q.s += slots;
    job.q.sum += slots;
    if (job.q.tiled) job.q.tiled += slots * kQuantBlock;
  }
  if (job.bf16.wide) job.bf16 = rows_from(job.bf16, begin);
  return job;
}

// With many rows threads take items, some panels by a chunk of rows, as they get done. All chunks
// meet all panels of a piece; threads are at the same chunk at about the same time.
class Items {
 public:
  Items(const CpuKernels& kernels, const Matrix& w, int64_t chunk, std::atomic<int64_t>& next)
      : kernels_(kernels), w_(w), chunk_(chunk), next_(next) {
    take();
  }

  // job: of a piece. Every thread goes through all pieces in the same order.
  void run(const MatmulJob& job) {
    for (int64_t row = 0; row < job.rows; row += chunk_) {
      MatmulJob chunk = of_rows(job, row, std::min(row + chunk_, job.rows));
      for (const MatrixPart& part : w_.parts()) {
        cohort::cpu::set_part(chunk, part, w_.columns());
        run_part(chunk, cohort::cpu::panels(part));
        chunk.y += part.rows;
      }
    }
  }

 private:
  void run_part(const MatmulJob& job, int64_t panels) {
    for (int64_t p = 0; p < panels; p += kItemPanels, number_++)
      if (number_ == mine_) {
        kernel_of(kernels_, job)(job, p, std::min(p + kItemPanels, panels));
        take();
      }
  }
  void take() { mine_ = next_.fetch_add(1, std::memory_order_relaxed); }

  const CpuKernels& kernels_;
  const Matrix& w_;
  const int64_t chunk_;  // rows
  std::atomic<int64_t>& next_;
  int64_t number_ = 0;  // of the item that comes by
  int64_t mine_ = 0;    // this thread's next
};

// Whole tiles of rows, about equal, few enough to stay in a second-level cache as int8 while panels
// pass by, and to give every thread several items.
int64_t chunk_rows(int64_t rows, const Matrix& w, int64_t threads) {
  constexpr int64_t kCacheBytes = 512 << 10, kItemsPerThread = 8;
  const int64_t row_bytes = w.columns() * 2;  // with scales and sums, and room for weights
  const int64_t fair = rows * w.rows() / (kPanelRows * kItemPanels * kItemsPerThread * threads);
  const int64_t most = std::max(std::min(kCacheBytes / row_bytes, fair), kManyRows);
  const int64_t chunks = (rows + most - 1) / most;
  return ((rows + chunks - 1) / chunks + kRowTile - 1) / kRowTile * kRowTile;
}

// What all parts and pieces have in common.
MatmulJob job_of(const Activations& x, const Matrix& w) {
  MatmulJob job{};
  job.columns = w.columns();
  job.unit_columns = w.unit_columns();
  job.rows = x.x().dim(0);
  job.x = x.x().f32();
  job.stride = w.rows();
  job.int8 = wants_int8(x.mode());
  if (job.int8 && job.columns % kQuantBlock == 0)
    job.q = quantized_rows(x.storage().data(), job.rows, job.columns);
  if (x.mode() == ActivationMode::bf16)
    job.bf16 = bf16_rows(x.storage().data(), job.rows, job.columns);
  return job;
}

}  // namespace

void matmul(Stream& stream, Tensor y, const Activations& x, const Matrix& w,
            std::span<const UnitRange> pieces) {
  const int64_t rows = x.x().dim(0);
  if (rows == 0 || w.rows() == 0 || pieces.empty()) return;
  MatmulJob job = job_of(x, w);
  auto& state = cohort::cpu::State::of(stream);
  state.reserve(cohort::cpu::scratch_bytes(job, stream.isa()));
  job.bf16_tiles = job.bf16.wide && state.bf16_tiles(stream.isa());
  const CpuKernels& kernels = cpu_kernels(stream.isa());
  const int64_t bytes = w.packed_bytes(), threads = stream.threads().size();
  const bool many = rows >= kManyRows;
  const int64_t chunk = many ? chunk_rows(rows, w, threads) : rows;
  std::atomic<int64_t> next{0};
  stream.threads().run([&](int thread) {
    MatmulJob mine = job;
    mine.scratch = reinterpret_cast<float*>(state.scratch(thread));
    Items items(kernels, w, chunk, next);
    for (size_t i = 0; i < pieces.size(); i++) {
      mine.begin = pieces[i].begin * job.unit_columns;
      mine.end = pieces[i].end * job.unit_columns;
      mine.y = y.f32() + int64_t(i) * rows * job.stride;
      if (many)
        items.run(mine);
      else
        run_share(kernels, mine, w, PanelShare::of(bytes, thread, threads));
    }
  });
}

}  // namespace cohort::ops::cpu
