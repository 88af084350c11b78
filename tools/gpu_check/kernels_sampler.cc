// SPDX-License-Identifier: Apache-2.0
// The sampler against the CPU's, which has the same rules (kernels/sampling.h): the same tokens;
// log-probabilities are compared within a tolerance and to the bit.
#include <cstring>

#include "kernels/cuda/sampler.h"
#include "kernels/ops.h"
#include "tools/gpu_check/arrays.h"
#include "tools/gpu_check/kernel_checks.h"

namespace cohort::gpu_check {
namespace {

struct SampleCase {
  SamplingParams params;
  std::vector<int32_t> prompt, output;
  std::vector<float> logits;
};

SampleCase random_case(std::mt19937& random, int32_t vocab) {
  const auto one_of = [&](std::initializer_list<float> values) {
    return values.begin()[random() % values.size()];
  };
  const auto token = [&] { return int32_t(random() % uint32_t(vocab)); };
  SampleCase c;
  c.logits = reference::random_floats(vocab, random, one_of({0.3f, 2, 8}));
  SamplingParams& p = c.params;
  p.temperature = one_of({0, 0.2f, 0.8f, 1, 1.5f});
  p.seed = random();
  p.top_k = int32_t(one_of({0, 0, 1, 40, 300}));
  p.top_p = one_of({1, 1, 0.1f, 0.5f, 0.9f, 0.99f});
  p.min_p = one_of({0, 0, 0.05f});
  p.repetition_penalty = one_of({1, 1, 1.3f});
  p.frequency_penalty = one_of({0, 0, 0.5f});
  p.presence_penalty = one_of({0, 0, -0.3f});
  if (random() % 3 == 0) p.logit_bias = {{token(), 5.0f}, {token(), -100.0f}};
  if (random() % 3 == 0) p.min_tokens = 100, p.end_tokens = {token(), token()};
  if (random() % 2 == 0) p.logprobs = int32_t(one_of({0, 5, 20}));
  for (int i = 0; i < 20; i++) c.prompt.push_back(token());
  for (uint32_t i = random() % 30; i > 0; i--) c.output.push_back(token());
  return c;
}

std::vector<SampledToken> on_gpu(const Bench& bench, const std::vector<SampleCase>& cases) {
  const int64_t vocab = int64_t(cases[0].logits.size()), n = int64_t(cases.size());
  Stream stream(bench.device, DType::f32, 1, true);
  const cuda::TokenTable table(stream, int32_t(n), 100);
  cuda::Sampler sampler(stream, table, int32_t(n), vocab);
  std::vector<float> logits;
  std::vector<int32_t> tokens(size_t(n) * 100);
  std::vector<cuda::SamplerRow> rows;
  for (size_t i = 0; i < cases.size(); i++) {
    const SampleCase& c = cases[i];
    logits.insert(logits.end(), c.logits.begin(), c.logits.end());
    std::copy(c.prompt.begin(), c.prompt.end(), tokens.begin() + int64_t(i) * 100);
    std::copy(c.output.begin(), c.output.end(),
              tokens.begin() + int64_t(i * 100 + c.prompt.size()));
    rows.push_back({&c.params, int32_t(i), int32_t(c.prompt.size()),
                    int32_t(c.prompt.size() + c.output.size())});
  }
  bench.device->upload(table.data(), tokens.data(), tokens.size() * sizeof(int32_t));
  std::vector<std::byte> host(sampler.input_bytes());
  const size_t used = sampler.fill(host.data(), rows, n);
  const Buffer inputs = bench.device->allocate(host.size()),
               out = bench.device->allocate(size_t(n) * sizeof(cuda::SampledRow));
  bench.device->upload(inputs.data(), host.data(), used);
  const Array values(*bench.device, DType::f32, logits);
  sampler.enqueue(stream, cuda::features_of(rows), values.matrix(n), inputs.data(),
                  out.as<cuda::SampledRow>());
  std::vector<cuda::SampledRow> results(cases.size());
  bench.device->download(results.data(), out.data(), out.size());
  std::vector<SampledToken> sampled;
  for (const cuda::SampledRow& row : results) sampled.push_back(cuda::to_sampled_token(row));
  return sampled;
}

SampledToken on_cpu(const SampleCase& c) {
  Stream stream(1, Isa::portable);
  std::vector<float> logits = c.logits;
  const SampleRow row{&c.params, c.prompt, c.output};
  SampledToken out;
  ops::cpu::sample(stream, {&out, 1},
                   Tensor(logits.data(), DType::f32, {1, int64_t(logits.size())}), {&row, 1});
  return out;
}

void compare(const Bench& bench, int32_t vocab, int rows) {
  std::vector<SampleCase> cases;
  for (int i = 0; i < rows; i++) cases.push_back(random_case(bench.random, vocab));
  const std::vector<SampledToken> got = on_gpu(bench, cases);
  int other = 0, same_bits = 0;
  double worst = 0;
  for (size_t i = 0; i < cases.size(); i++) {
    const SampledToken expected = on_cpu(cases[i]);
    other += got[i].token != expected.token || got[i].top.size() != expected.top.size();
    same_bits += got[i] == expected;
    worst = larger(worst, std::fabs(double(got[i].logprob) - double(expected.logprob)) / 1e-4);
  }
  const std::string shape = concat(rows, " rows, vocab ", vocab);
  bench.report.pass("sampler, tokens", shape, other == 0, concat(other, " differ from the CPU's"));
  bench.report.check("sampler, log-probabilities", shape, worst);
  bench.report.add("sampler, rows equal to the bit", shape, same_bits, "rows", rows);
}

}  // namespace

void check_sampler(const Bench& bench) {
  std::vector<std::pair<int32_t, int>> shapes = {{1000, 256}, {32003, 64}, {128256, 64}};
  if (bench.report.tiny()) shapes = {{300, 24}};
  for (const auto& [vocab, rows] : shapes)
    bench.report.guarded("sampler", concat("vocab ", vocab),
                         [&bench, vocab = vocab, rows = rows] { compare(bench, vocab, rows); });
}

}  // namespace cohort::gpu_check
