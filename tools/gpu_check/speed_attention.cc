// SPDX-License-Identifier: Apache-2.0
#include "kernels/ops.h"
#include "tools/gpu_check/arrays.h"
#include "tools/gpu_check/cache_step.h"
#include "tools/gpu_check/random_checkpoint.h"
#include "tools/gpu_check/speed.h"

namespace cohort::gpu_check {
namespace {

constexpr DType kType = DType::bf16;

KvGeometry geometry(bool tiny, DType cache) {
  const ModelConfig c = tiny ? small_llama() : llama_8b();
  return {int(c.heads), int(c.kv_heads), int(c.head_dim), cache};
}

// Layer after layer, as a step has it, so that no cache of the GPU keeps the keys.
double attention_seconds(const SpeedBench& bench, const KvGeometry& g, const CacheStep& step) {
  Stream stream(bench.device, kType, 1, false);
  const int64_t width = int64_t(g.heads) * g.dim, rows = step.rows();
  const int copies = bench.copies(double(step.cache_bytes()));
  const int64_t elements = step.cache_bytes() * copies / bytes_of(g.dtype, 1);
  const Buffer cache = g.dtype == DType::f8_e4m3
                           ? bench.device->allocate(size_t(elements))
                           : random_array(*bench.device, g.dtype, elements, 5),
               q = random_array(*bench.device, kType, rows * width, 6),
               out = bench.device->allocate(size_t(2 * rows * width));
  return bench.seconds([&](int i) {
    ops::cuda::attention(stream, Tensor(out.data(), kType, {rows, width}),
                         Tensor(q.data(), kType, {rows, width}),
                         {cache.data() + step.cache_bytes() * (i % copies), g}, step.batch());
  });
}

void decode(const SpeedBench& bench, DType cache, int batch, int context) {
  const KvGeometry g = geometry(bench.report.tiny(), cache);
  const std::string shape =
      concat("bf16, cache ", name(cache), ", batch ", batch, ", context ", context);
  bench.report.guarded("attention, decode", shape, [&] {
    const CacheStep step(*bench.device, g,
                         std::vector<SequencePart>(size_t(batch), {context - 1, 1}), 0);
    const double seconds = attention_seconds(bench, g, step);
    const double pairs = double(batch) * context;
    bench.add("attention, decode", shape, seconds,
              pairs * 2 * double(bytes_of(cache, int64_t(g.kv_heads) * g.dim)),
              4 * pairs * g.heads * g.dim);
  });
}

void prefill(const SpeedBench& bench, int length) {
  const KvGeometry g = geometry(bench.report.tiny(), kType);
  const std::string shape = concat("bf16, prompt ", length);
  bench.report.guarded("attention, prefill", shape, [&] {
    const CacheStep step(*bench.device, g, {{0, length}}, 0);
    const double seconds = attention_seconds(bench, g, step);
    const double pairs = double(length) * (length + 1) / 2;
    bench.add("attention, prefill", shape, seconds, 1, 4 * pairs * g.heads * g.dim);
  });
}

}  // namespace

void measure_attention(const SpeedBench& bench) {
  const bool tiny = bench.report.tiny();
  for (const DType cache : {kType, DType::f8_e4m3})
    for (const int context : tiny ? std::vector<int>{40} : std::vector<int>{1024, 8192})
      for (const int batch : tiny ? std::vector<int>{2} : std::vector<int>{1, 8, 64})
        decode(bench, cache, batch, context);
  for (const int length : tiny ? std::vector<int>{33} : std::vector<int>{512, 2048, 8192})
    prefill(bench, length);
}

}  // namespace cohort::gpu_check
