// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "base/failure.h"
#include "kernels/ops.h"
#include "tools/gpu_check/arrays.h"
#include "tools/gpu_check/cache_step.h"
#include "tools/gpu_check/random_checkpoint.h"
#include "tools/gpu_check/speed.h"

namespace cohort::gpu_check {
namespace {

constexpr DType kType = DType::bf16;
constexpr float kEps = 1e-5f;

class RowsSpeed {
 public:
  RowsSpeed(const SpeedBench& bench, int64_t rows)
      : bench_(bench),
        config_(bench.report.tiny() ? small_llama() : llama_8b()),
        rows_(rows),
        stream_(bench.device, kType, 1, false) {}

  void norms() {
    const int64_t n = config_.hidden, elements = rows_ * n;
    const int copies = bench_.copies(double(elements) * 12);
    const Buffer x = random(DType::f32, elements * copies), y = random(kType, elements * copies),
                 weight = random(DType::f32, n),
                 errors = ints(std::vector<int32_t>(size_t(rows_), -1));
    const Tensor w(weight.data(), DType::f32, {n}), e(errors.data(), DType::i32, {rows_});
    const auto at = [&](const Buffer& b, DType type, int i) {
      return Tensor(b.data() + bytes_of(type, elements) * (i % copies), type, {rows_, n});
    };
    add("rms_norm", n, 6 * elements, [&](int i) {
      ops::cuda::rms_norm(stream_, at(y, kType, i), at(x, DType::f32, i), w, kEps);
    });
    add("add_rms_norm", n, 12 * elements, [&](int i) {
      const Tensor out = at(y, kType, i);
      ops::cuda::add_rms_norm(stream_, out, at(x, DType::f32, i), out, w, kEps, e, 1);
    });
  }

  void gate() {
    const int64_t n = config_.ffn, elements = rows_ * n;
    const int copies = bench_.copies(double(elements) * 6);
    const Buffer in = random(kType, 2 * elements * copies), out = random(kType, elements * copies);
    add("silu_mul", n, 6 * elements, [&](int i) {
      const int64_t k = i % copies;
      ops::cuda::silu_mul(stream_, Tensor(out.data() + 2 * elements * k, kType, {rows_, n}),
                          Tensor(in.data() + 4 * elements * k, kType, {rows_, 2 * n}));
    });
  }

  void rope() {
    const KvGeometry g{int(config_.heads), int(config_.kv_heads), int(config_.head_dim), kType};
    const CacheStep step(*bench_.device, g, {{0, int(rows_)}}, 0);
    const int64_t q = config_.heads * config_.head_dim, kv = config_.kv_heads * config_.head_dim;
    std::vector<double> frequencies;
    for (int i = 0; i < g.dim / 2; i++) frequencies.push_back(std::pow(5e5, -2.0 * i / g.dim));
    const RopeTable table(*bench_.device, frequencies, rows_, false);
    const int64_t bytes = 2 * rows_ * (2 * q + 4 * kv);
    const int copies = bench_.copies(double(bytes));
    const Buffer in = random(kType, rows_ * (q + 2 * kv) * copies),
                 out = random(kType, rows_ * q * copies),
                 cache = bench_.device->allocate(size_t(step.cache_bytes() * copies));
    add("rope_store", q + 2 * kv, bytes, [&](int i) {
      const int64_t k = i % copies;
      ops::cuda::rope_store(
          stream_, Tensor(out.data() + 2 * rows_ * q * k, kType, {rows_, q}),
          {cache.data() + step.cache_bytes() * k, g},
          Tensor(in.data() + 2 * rows_ * (q + 2 * kv) * k, kType, {rows_, q + 2 * kv}),
          step.batch(), table);
    });
  }

  void embedding() {
    RandomCheckpoint checkpoint(config_, kType);
    const WeightInfo& weight = *checkpoint.find("embedding");
    Matrix table(config_.hidden, 0);
    const Status status = table.add_part(
        stream_, weight.dtype, weight.rows, [&](int64_t begin, int64_t end, std::byte* out) {
          return checkpoint.read(weight, begin, end, 0, weight.columns, out);
        });
    if (!status.ok()) throw Failure(status);
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < rows_; i++) ids.push_back(int32_t(i * 7919 % config_.vocab));
    const Buffer list = ints(ids), out = random(DType::f32, rows_ * config_.hidden);
    add("embedding", config_.hidden, 6 * rows_ * config_.hidden, [&](int) {
      ops::cuda::embedding(stream_, Tensor(out.data(), DType::f32, {rows_, config_.hidden}), table,
                           Tensor(list.data(), DType::i32, {rows_}), 0);
    });
  }

 private:
  void add(const char* name, int64_t n, int64_t bytes, const std::function<void(int)>& f) const {
    bench_.add(name, concat("bf16, ", rows_, " x ", n), bench_.seconds(f), double(bytes), 0, kCopy);
  }
  Buffer random(DType type, int64_t n) const { return random_array(*bench_.device, type, n, 3); }
  Buffer ints(const std::vector<int32_t>& values) const {
    Buffer out = bench_.device->allocate(values.size() * sizeof(int32_t));
    bench_.device->upload(out.data(), values.data(), out.size());
    return out;
  }

  const SpeedBench& bench_;
  const ModelConfig config_;
  const int64_t rows_;
  Stream stream_;
};

}  // namespace

void measure_rows(const SpeedBench& bench) {
  std::vector<int64_t> sizes = {8, 64, 512, 8192};
  if (bench.report.tiny()) sizes = {3};
  for (const int64_t rows : sizes) {
    RowsSpeed speed(bench, rows);
    const std::string shape = concat(rows, " rows");
    bench.report.guarded("norms", shape, [&] { speed.norms(); });
    bench.report.guarded("silu_mul", shape, [&] { speed.gate(); });
    bench.report.guarded("rope_store", shape, [&] { speed.rope(); });
    bench.report.guarded("embedding", shape, [&] { speed.embedding(); });
  }
}

}  // namespace cohort::gpu_check
