// SPDX-License-Identifier: Apache-2.0
// One step of the GPU's sampler on the emulated device, beside the CPU's for the same rows.
#pragma once
#include <memory>
#include <vector>

#include "base/device_cuda.h"
#include "kernels/cuda/sampler.h"

namespace cohort {

struct SampleCase {
  SamplingParams params;
  std::vector<int32_t> prompt, output;
  std::vector<float> logits;
};

class SamplerRig {
 public:
  static constexpr int32_t kPositions = 700;

  // Slots are handed out from the last one on, so that rows and slots differ.
  SamplerRig(int64_t vocab, int32_t max_rows);

  // Puts the step's inputs where the kernels read them. Rows past the cases' are padding.
  void load(const std::vector<SampleCase>& cases, int64_t launched);
  void enqueue(const cuda::SamplerFeatures& features);
  // Waits; what became of the loaded rows. Fails the test if anything else was written to the table
  // or to the results.
  std::vector<SampledToken> results();
  std::vector<SampledToken> run(const std::vector<SampleCase>& cases, int64_t launched = 0);

  cuda::SamplerFeatures features() const { return cuda::features_of(rows_); }
  CudaDevice& device() { return *device_; }
  Stream& stream() { return stream_; }

 private:
  int32_t slot_of(size_t row) const { return table_.slots() - 1 - int32_t(row); }
  void load_table();

  int64_t vocab_, launched_ = 0;
  std::shared_ptr<CudaDevice> device_;
  Stream stream_;
  cuda::TokenTable table_;
  cuda::Sampler sampler_;
  Buffer logits_, inputs_, out_;
  std::vector<SampleCase> cases_;
  std::vector<cuda::SamplerRow> rows_;
  std::vector<int32_t> expected_table_;
};

// By ops::cpu::sample.
std::vector<SampledToken> sample_on_cpu(const std::vector<SampleCase>& cases);

// Says on failure which row and parameters differ.
void expect_same(const std::vector<SampledToken>& got, const std::vector<SampleCase>& cases);

}  // namespace cohort
