// SPDX-License-Identifier: Apache-2.0
// The definition of bf16 arithmetic (docs/arithmetic.md section 9): plain scalar code that every
// other form must match bit for bit. It flushes by hand what the others leave to the processor.
#include <algorithm>
#include <cstring>

#include "base/half.h"
#include "kernels/cpu/flushed.h"
#include "kernels/cpu/matmul_job.h"
#include "kernels/cpu/round_bf16.h"
#include "kernels/cpu/unit_sums.h"
#include "kernels/packed.h"

namespace cohort {
namespace {

using Lanes = float[kPanelRows];

constexpr int kBlock = 32;  // columns of two chains

// Columns [k0, k1), at most 32, of one row of x.
void add_block(const uint16_t* panel, const float* x, int64_t k0, int64_t k1, Lanes& acc) {
  Lanes chains[2] = {};
  for (int64_t k = k0; k < k1; k++) {
    Lanes& chain = chains[(k - k0) % 2];
    for (int lane = 0; lane < kPanelRows; lane++)
      chain[lane] =
          flushed_fma(flushed(bf16_to_float(panel[k * kPanelRows + lane])), x[k], chain[lane]);
  }
  for (int lane = 0; lane < kPanelRows; lane++)
    acc[lane] = flushed_sum(acc[lane], flushed_sum(chains[0][lane], chains[1][lane]));
}

void unit_sum(const uint16_t* panel, const float* x, int64_t k0, int64_t k1, Lanes& acc) {
  for (float& a : acc) a = 0;
  for (int64_t k = k0; k < k1; k += kBlock)
    add_block(panel, x, k, std::min<int64_t>(k + kBlock, k1), acc);
}

}  // namespace

void round_bf16_portable(const float* x, int64_t n, float* wide, uint16_t* narrow) {
  round_to_bf16(x, n, wide, narrow);
}

void matmul_bf16_portable(const MatmulJob& job, int64_t p0, int64_t p1) {
  for (int64_t p = p0; p < p1; p++) {
    const auto* panel = reinterpret_cast<const uint16_t*>(job.packed + p * job.panel_bytes);
    for (int64_t row = 0; row < job.rows; row++) {
      UnitSums<float, kPanelRows> sums;  // whose additions flush nothing
      Lanes acc;
      for (int64_t k = job.begin; k < job.end; k += job.unit_columns) {
        unit_sum(panel, job.bf16.wide + row * job.bf16.stride, k, k + job.unit_columns, acc);
        sums.push(acc);
      }
      sums.finish(acc);
      const int64_t lanes = std::min<int64_t>(kPanelRows, job.n - p * kPanelRows);
      std::memcpy(job.y + row * job.stride + p * kPanelRows, acc, size_t(lanes) * sizeof(float));
    }
  }
}

}  // namespace cohort
