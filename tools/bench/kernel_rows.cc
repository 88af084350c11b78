// SPDX-License-Identifier: Apache-2.0
// What is done to rows between products, one token's and those of a chunk. Rows stay in caches from
// one op to the next in a model, so they do here.
#include <cmath>

#include "kernels/ops.h"
#include "tools/bench/kernel_case.h"
#include "tools/bench/layer_shape.h"

namespace cohort::bench {
namespace {

constexpr LayerShape kShape = kLayerShapes[1];
constexpr int64_t kRows[] = {1, 128};
constexpr int32_t kPositions = 1024;

// Rows of any kind of a layer, and what ops need beside them.
struct Rows {
  Rows(Stream& s, int64_t n)
      : stream(s),
        rows(n),
        x(size_t(n * kShape.hidden), 0.5f),
        y(size_t(n * kShape.hidden), 1e-3f),
        out(size_t(n * kShape.ffn)),
        wide(size_t(n * 2 * kShape.ffn), 0.5f),
        weight(size_t(kShape.hidden), 1.0f),
        errors(size_t(n), -1),
        prepared(s, n, kShape.ffn, ActivationMode::int8) {}

  Tensor matrix(std::vector<float>& values, int64_t columns) {
    return Tensor(values.data(), DType::f32, {rows, columns});
  }
  Tensor weights() { return Tensor(weight.data(), DType::f32, {kShape.hidden}); }
  Tensor row_errors() { return Tensor(errors.data(), DType::i32, {rows}); }

  Stream& stream;
  const int64_t rows;
  std::vector<float> x, y, out, wide, weight;
  std::vector<int32_t> errors;
  Activations prepared;
};

using RowsPointer = std::shared_ptr<Rows>;

KernelCase rms_norm(const RowsPointer& r, double n) {
  return {"", {.cache_bytes = 8 * n * kShape.hidden, .fma_operations = 4 * n * kShape.hidden}, [r] {
            ops::rms_norm(r->stream, r->matrix(r->out, kShape.hidden),
                          r->matrix(r->x, kShape.hidden), r->weights(), 1e-5f);
          }};
}

KernelCase add_rms_norm(const RowsPointer& r, double n) {
  return {
      "", {.cache_bytes = 16 * n * kShape.hidden, .fma_operations = 5 * n * kShape.hidden}, [r] {
        ops::add_rms_norm(r->stream, r->matrix(r->out, kShape.hidden),
                          r->matrix(r->x, kShape.hidden), r->matrix(r->y, kShape.hidden),
                          r->weights(), 1e-5f, r->row_errors(), 0);
      }};
}

KernelCase quantise(const RowsPointer& r, double n) {
  return {"",
          {.cache_bytes = 5.25 * n * kShape.hidden, .fma_operations = 3 * n * kShape.hidden},
          [r] { ops::prepare(r->stream, r->prepared, r->matrix(r->x, kShape.hidden)); }};
}

// The exponential takes 6 multiply-adds.
KernelCase silu_mul(const RowsPointer& r, double n) {
  return {"", {.cache_bytes = 12 * n * kShape.ffn, .fma_operations = 18 * n * kShape.ffn}, [r] {
            ops::silu_mul(r->stream, r->matrix(r->out, kShape.ffn),
                          r->matrix(r->wide, 2 * kShape.ffn));
          }};
}

// Queries, keys and values of a step at the end of one sequence.
struct Rotation {
  explicit Rotation(const RowsPointer& r)
      : rows(r),
        table(r->stream.device(), frequencies(), kPositions, false),
        memory(size_t(kPositions / kBlockTokens) * geometry.block_bytes()) {
    for (int32_t i = 0; i < kPositions / kBlockTokens; i++) blocks.push_back(i);
    batch.emplace(geometry,
                  std::vector<AttentionEntry>{
                      {blocks.data(), 0, int32_t(kPositions - r->rows), int32_t(r->rows)}},
                  r->stream.threads().size());
  }
  static std::vector<double> frequencies() {
    std::vector<double> all;
    for (int i = 0; i < kShape.dim / 2; i++)
      all.push_back(std::pow(500000.0, -2.0 * i / double(kShape.dim)));
    return all;
  }
  void run() {
    const int64_t heads = kShape.heads + 2 * kShape.kv_heads;
    ops::rope_store(rows->stream, rows->matrix(rows->out, kShape.heads * kShape.dim),
                    {memory.data(), geometry}, rows->matrix(rows->wide, heads * kShape.dim), *batch,
                    table);
  }

  const RowsPointer rows;
  const KvGeometry geometry{int(kShape.heads), int(kShape.kv_heads), int(kShape.dim), DType::f16};
  const RopeTable table;
  Buffer memory;
  std::vector<int32_t> blocks;
  std::optional<AttentionBatch> batch;
};

KernelCase rope_store(const RowsPointer& r, double n) {
  const auto rotation = std::make_shared<Rotation>(r);
  const double q = double(kShape.heads * kShape.dim), kv = 2.0 * kShape.kv_heads * kShape.dim;
  return {"",
          {.cache_bytes = n * (8 * q + 6 * kv), .fma_operations = 3 * n * (q + kv / 2)},
          [rotation] { rotation->run(); }};
}

struct RowOp {
  const char* name;
  KernelCase (*make)(const RowsPointer&, double rows);
};
constexpr RowOp kOps[] = {{"rms_norm", rms_norm},
                          {"add_rms_norm", add_rms_norm},
                          {"quantise", quantise},
                          {"silu_mul", silu_mul},
                          {"rope_store", rope_store}};

}  // namespace

std::vector<CaseGroup> row_cases(const CaseSetting& setting) {
  std::vector<CaseGroup> groups;
  for (const RowOp& op : kOps)
    for (const int64_t rows : kRows) {
      const std::string name = concat(op.name, " ", kShape.name, " rows ", rows);
      groups.push_back({{name}, [&stream = setting.stream, op, rows, name] {
                          KernelCase made =
                              op.make(std::make_shared<Rows>(stream, rows), double(rows));
                          made.name = name;
                          return std::vector<KernelCase>{std::move(made)};
                        }});
    }
  return groups;
}

}  // namespace cohort::bench
