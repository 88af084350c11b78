// SPDX-License-Identifier: Apache-2.0
// What makes the input of products, and prepares each row as soon as it is made: one pass over
// memory and one region of the pool where the ops by themselves need three to five.
#include "kernels/cpu/isa_table.h"
#include "kernels/cpu/norm_scale.h"
#include "kernels/cpu/prepare.h"
#include "kernels/cpu/state.h"
#include "kernels/ops.h"

namespace cohort::ops::cpu {
namespace {

using cohort::cpu::RowPreparer;

// What a normed row costs, and one of silu_mul, by element; for_rows() has the unit.
constexpr int64_t kNormWork = 2, kSiluWork = 2;

// Norms rows of x into h. sums(row) has made the row of x what it must be.
template <class Sums>
void norm_and_prepare(Stream& stream, Activations& out, const Tensor& h, const Tensor& x,
                      const Tensor& weight, float eps, const Sums& sums) {
  const int64_t rows = x.dim(0), n = x.dim(1);
  const RowPreparer prepared(stream, out, h);
  ScaleRow* scale = cpu_kernels(stream.isa()).rows.scale;
  cohort::cpu::for_rows(stream, rows, x.elements() * kNormWork, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; r++) {
      const float factor = cohort::cpu::norm_scale(sums(r).squares, n, eps);
      scale(h.f32() + r * n, x.f32() + r * n, factor, weight.f32(), n);
      prepared.make(r, 0, n);
    }
  });
}

}  // namespace

void rms_norm_prepare(Stream& stream, Activations& out, Tensor h, Tensor x, Tensor weight,
                      float eps) {
  const int64_t n = x.dim(1);
  MeasureRow* measure = cpu_kernels(stream.isa()).rows.measure;
  norm_and_prepare(stream, out, h, x, weight, eps,
                   [&](int64_t row) { return measure(x.f32() + row * n, n); });
}

void add_rms_norm_prepare(Stream& stream, Activations& out, Tensor h, Tensor x, Tensor y,
                          Tensor weight, float eps, Tensor errors, int32_t code) {
  const int64_t n = x.dim(1);
  AddRow* add = cpu_kernels(stream.isa()).rows.add;
  norm_and_prepare(stream, out, h, x, weight, eps, [&](int64_t row) {
    const RowSums sums = add(x.f32() + row * n, y.f32() + row * n, n);
    int32_t& error = errors.i32()[row];
    if (error == -1 && !finite(sums)) error = code;
    return sums;
  });
}

void silu_mul_prepare(Stream& stream, Activations& out, Tensor act, Tensor gate_up) {
  const int64_t rows = act.dim(0), n = act.dim(1);
  const RowPreparer prepared(stream, out, act);
  SiluMul* silu = cpu_kernels(stream.isa()).silu_mul;
  cohort::cpu::for_columns(stream, rows, n, act.elements() * kSiluWork,
                           [&](int64_t row, int64_t begin, int64_t end) {
                             const float* gate = gate_up.f32() + row * 2 * n + begin;
                             silu(act.f32() + row * n + begin, gate, gate + n, end - begin);
                             prepared.make(row, begin, end);
                           });
}

}  // namespace cohort::ops::cpu
