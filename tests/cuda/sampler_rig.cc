// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/sampler_rig.h"

#include <gtest/gtest.h>

#include <cstring>
#include <sstream>

#include "kernels/ops.h"

namespace cohort {
namespace {

constexpr int32_t kUntouched = -77;

std::string describe(const SampleCase& c) {
  const SamplingParams& p = c.params;
  std::ostringstream out;
  out << "vocab " << c.logits.size() << " temperature " << p.temperature << " top_k " << p.top_k
      << " top_p " << p.top_p << " min_p " << p.min_p << " seed " << p.seed << " penalties "
      << p.frequency_penalty << ' ' << p.presence_penalty << ' ' << p.repetition_penalty
      << " biases " << p.logit_bias.size() << " min_tokens " << p.min_tokens << " end_tokens "
      << p.end_tokens.size() << " logprobs " << p.logprobs.value_or(-1) << " prompt "
      << c.prompt.size() << " output " << c.output.size();
  return out.str();
}

std::string describe(const SampledToken& t) {
  std::ostringstream out;
  out << std::hexfloat << "token " << t.token << " finite " << t.finite << " logprob " << t.logprob
      << " top";
  for (const TokenLogprob& l : t.top) out << ' ' << l.token << ':' << l.logprob;
  return out.str();
}

}  // namespace

SamplerRig::SamplerRig(int64_t vocab, int32_t max_rows)
    : vocab_(vocab),
      device_(CudaDevice::open(0).value()),
      stream_(device_, DType::f32, 1, true),
      table_(stream_, max_rows + 2, kPositions),
      sampler_(stream_, table_, max_rows, vocab),
      logits_(device_->allocate(size_t(max_rows) * size_t(vocab) * sizeof(float))),
      inputs_(device_->allocate(sampler_.input_bytes())),
      out_(device_->allocate(size_t(max_rows) * sizeof(cuda::SampledRow))) {}

void SamplerRig::load_table() {
  expected_table_.assign(size_t(table_.slots()) * kPositions, -3);
  for (size_t i = 0; i < cases_.size(); i++) {
    int32_t* at = expected_table_.data() + size_t(slot_of(i)) * kPositions;
    for (int32_t token : cases_[i].prompt) *at++ = token;
    for (int32_t token : cases_[i].output) *at++ = token;
  }
  device_->upload(table_.data(), expected_table_.data(), expected_table_.size() * sizeof(int32_t));
}

void SamplerRig::load(const std::vector<SampleCase>& cases, int64_t launched) {
  cases_ = cases;
  launched_ = launched;
  rows_.clear();
  std::vector<float> logits(size_t(launched * vocab_), std::numeric_limits<float>::quiet_NaN());
  for (size_t i = 0; i < cases_.size(); i++) {
    const SampleCase& c = cases_[i];
    std::copy(c.logits.begin(), c.logits.end(), logits.begin() + int64_t(i) * vocab_);
    const auto prompt = int32_t(c.prompt.size()), output = int32_t(c.output.size());
    rows_.push_back({&c.params, slot_of(i), prompt, prompt + output});
  }
  device_->upload(logits_.data(), logits.data(), logits.size() * sizeof(float));
  load_table();
  std::vector<std::byte> inputs(sampler_.input_bytes());
  const size_t used = sampler_.fill(inputs.data(), rows_, launched);
  device_->upload(inputs_.data(), inputs.data(), used);
  std::vector<cuda::SampledRow> out(size_t(launched), cuda::SampledRow{kUntouched});
  device_->upload(out_.data(), out.data(), out.size() * sizeof(cuda::SampledRow));
}

void SamplerRig::enqueue(const cuda::SamplerFeatures& features) {
  const Tensor logits(logits_.data(), DType::f32, {launched_, vocab_});
  sampler_.enqueue(stream_, features, logits, inputs_.data(), out_.as<cuda::SampledRow>());
}

std::vector<SampledToken> SamplerRig::results() {
  std::vector<cuda::SampledRow> out(size_t(launched_), cuda::SampledRow{});
  device_->download(out.data(), out_.data(), out.size() * sizeof(cuda::SampledRow));
  std::vector<int32_t> table(expected_table_.size());
  device_->download(table.data(), table_.data(), table.size() * sizeof(int32_t));
  std::vector<SampledToken> results;
  for (size_t i = 0; i < cases_.size(); i++) {
    results.push_back(cuda::to_sampled_token(out[i]));
    const size_t known = cases_[i].prompt.size() + cases_[i].output.size();
    expected_table_[size_t(slot_of(i)) * kPositions + known] = results.back().token;
  }
  EXPECT_TRUE(table == expected_table_) << "the table was written to elsewhere";
  for (size_t i = cases_.size(); i < out.size(); i++) EXPECT_EQ(out[i].token, kUntouched);
  return results;
}

std::vector<SampledToken> SamplerRig::run(const std::vector<SampleCase>& cases, int64_t launched) {
  load(cases, std::max(launched, int64_t(cases.size())));
  enqueue(features());
  return results();
}

std::vector<SampledToken> sample_on_cpu(const std::vector<SampleCase>& cases) {
  Stream stream(1, Isa::portable);
  std::vector<SampledToken> out(cases.size());
  for (size_t i = 0; i < cases.size(); i++) {
    const SampleCase& c = cases[i];
    std::vector<float> logits = c.logits;
    const SampleRow row{&c.params, c.prompt, c.output};
    ops::cpu::sample(stream, {&out[i], 1},
                     Tensor(logits.data(), DType::f32, {1, int64_t(logits.size())}), {&row, 1});
  }
  return out;
}

void expect_same(const std::vector<SampledToken>& got, const std::vector<SampleCase>& cases) {
  const std::vector<SampledToken> expected = sample_on_cpu(cases);
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); i++)
    EXPECT_TRUE(got[i] == expected[i]) << "row " << i << ": " << describe(cases[i]) << "\n  got "
                                       << describe(got[i]) << "\n  not " << describe(expected[i]);
}

}  // namespace cohort
