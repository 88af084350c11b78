// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/sampler.h"
#include "tools/gpu_check/arrays.h"
#include "tools/gpu_check/random_checkpoint.h"
#include "tools/gpu_check/speed.h"

namespace cohort::gpu_check {
namespace {

void measure(const SpeedBench& bench, const std::string& what, const SamplingParams& params,
             int batch) {
  const int64_t vocab = bench.report.tiny() ? small_llama().vocab : llama_8b().vocab;
  CudaDevice& device = *bench.device;
  Stream stream(bench.device, DType::f32, 1, false);
  const cuda::TokenTable table(stream, batch, 64);
  cuda::Sampler sampler(stream, table, batch, vocab);
  std::mt19937 random(9);
  const std::vector<float> row = reference::random_floats(vocab, random, 2.5f);
  const size_t bytes = size_t(batch) * size_t(vocab) * sizeof(float);
  const Buffer fresh = device.allocate(bytes), logits = device.allocate(bytes),
               inputs = device.allocate(sampler.input_bytes()),
               out = device.allocate(size_t(batch) * sizeof(cuda::SampledRow));
  for (int i = 0; i < batch; i++)
    device.upload(fresh.data() + size_t(i) * bytes / size_t(batch), row.data(),
                  bytes / size_t(batch));
  std::vector<cuda::SamplerRow> rows;
  for (int i = 0; i < batch; i++) rows.push_back({&params, i, 8, 16});
  std::vector<std::byte> host(sampler.input_bytes());
  device.upload(inputs.data(), host.data(), sampler.fill(host.data(), rows, batch));
  // Sampling overwrites its logits: they are copied there first, which is measured by itself.
  const auto copy = [&] {
    cuda_check(cudaMemcpyAsync(logits.data(), fresh.data(), bytes, cudaMemcpyDeviceToDevice,
                               device.compute()),
               "cudaMemcpyAsync");
  };
  const cuda::SamplerFeatures features = cuda::features_of(rows);
  const double copying = bench.seconds([&](int) { copy(); });
  const double both = bench.seconds([&](int) {
    copy();
    sampler.enqueue(stream, features, Tensor(logits.data(), DType::f32, {batch, vocab}),
                    inputs.data(), out.as<cuda::SampledRow>());
  });
  const double seconds = std::max(both - copying, 1e-9);
  bench.add("sampler, " + what, concat("batch ", batch, ", vocab ", vocab), seconds, double(bytes),
            0);
  bench.report.add("sampler, " + what, concat("batch ", batch, ", time"), seconds * 1e6, "us");
}

}  // namespace

void measure_sampler(const SpeedBench& bench) {
  SamplingParams greedy, top_p;
  greedy.temperature = 0;
  top_p.temperature = 0.8f;
  top_p.top_p = 0.95f;
  for (const int batch : bench.report.tiny() ? std::vector<int>{2} : std::vector<int>{1, 64, 256}) {
    const std::string shape = concat("batch ", batch);
    bench.report.guarded("sampler, greedy", shape,
                         [&] { measure(bench, "greedy", greedy, batch); });
    bench.report.guarded("sampler, top-p", shape, [&] { measure(bench, "top-p", top_p, batch); });
  }
}

}  // namespace cohort::gpu_check
