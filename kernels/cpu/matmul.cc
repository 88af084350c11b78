// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/cpu/isa_table.h"
#include "kernels/cpu/matmul_part.h"
#include "kernels/cpu/state.h"
#include "kernels/ops.h"

namespace cohort::ops::cpu {
namespace {

// Thread t of `threads` takes the panels whose first byte lies in its share of all parts' bytes:
// parts of different types balance, and a thread reads its panels as one stream.
struct Share {
  int64_t begin, end;  // bytes
  UnitRange panels(int64_t part_begin, int64_t panel_bytes, int64_t count) const {
    const auto first = [&](int64_t at) {
      return int(std::clamp<int64_t>((at - part_begin + panel_bytes - 1) / panel_bytes, 0, count));
    };
    return {first(begin), first(end)};
  }
};

void run_share(const CpuKernels& kernels, MatmulJob job, const Matrix& w, float* y, int64_t stride,
               Share share) {
  int64_t part_begin = 0, column = 0;
  for (const MatrixPart& part : w.parts()) {
    cohort::cpu::set_part(job, part, w.columns());
    job.y = y + column;
    job.stride = stride;
    const UnitRange mine = share.panels(part_begin, job.panel_bytes, cohort::cpu::panels(part));
    if (mine.size() > 0) cohort::cpu::kernel_of(kernels, job)(job, mine.begin, mine.end);
    part_begin += int64_t(part.packed.size());
    column += part.rows;
  }
}

}  // namespace

void matmul(Stream& stream, Tensor y, const Activations& x, const Matrix& w,
            std::span<const UnitRange> pieces) {
  const int64_t rows = x.x().dim(0), columns = w.columns(), n = w.rows();
  if (rows == 0 || n == 0 || pieces.empty()) return;
  MatmulJob job{};
  job.columns = columns;
  job.unit_columns = w.unit_columns();
  job.rows = rows;
  job.x = x.x().f32();
  job.int8 = wants_int8(x.mode());
  if (job.int8 && columns % kQuantBlock == 0)
    job.q = quantized_rows(x.storage().data(), rows, columns);
  if (x.mode() == ActivationMode::bf16) job.bf16 = bf16_rows(x.storage().data(), rows, columns);
  auto& state = cohort::cpu::State::of(stream);
  state.reserve(cohort::cpu::scratch_bytes(job, stream.isa()));
  job.bf16_tiles = job.bf16.wide && state.bf16_tiles(stream.isa());
  const CpuKernels& kernels = cpu_kernels(stream.isa());
  const int64_t bytes = w.packed_bytes(), threads = stream.threads().size();
  stream.threads().run([&](int thread) {
    MatmulJob mine = job;
    mine.scratch = reinterpret_cast<float*>(state.scratch(thread));
    for (size_t i = 0; i < pieces.size(); i++) {
      mine.begin = pieces[i].begin * job.unit_columns;
      mine.end = pieces[i].end * job.unit_columns;
      run_share(kernels, mine, w, y.f32() + int64_t(i) * rows * n, n,
                {bytes * thread / threads, bytes * (thread + 1) / threads});
    }
  });
}

}  // namespace cohort::ops::cpu
