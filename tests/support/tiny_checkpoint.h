// SPDX-License-Identifier: Apache-2.0
// A random model in memory, for tests that need no files.
#pragma once
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "model/checkpoint.h"

namespace cohort::testing {

struct TinyModel {
  ModelConfig config;
  DType matrices = DType::f32;  // f32, bf16, q8_0, q4_0 or q4_1
  uint32_t seed = 1;
};
// 9 heads over 3 KV heads of 32, 3 layers: units divide by neither 2 nor 4.
TinyModel tiny_model(DType matrices, bool tied = true);

class TinyCheckpoint : public Checkpoint {
 public:
  explicit TinyCheckpoint(const TinyModel& model);

  const std::string& path() const override { return path_; }
  const std::string& format() const override { return format_; }
  const ModelConfig& config() const override { return model_.config; }
  const std::vector<WeightInfo>& weights() const override { return weights_; }
  Status read(const WeightInfo& weight, int64_t row_begin, int64_t row_end, int64_t column_begin,
              int64_t column_end, std::byte* out) override;
  int64_t bytes_read() const override { return bytes_read_; }
  int64_t total_weight_bytes() const override;
  Result<std::unique_ptr<Tokenizer>> tokenizer() const override;
  const std::string& fingerprint() const override { return fingerprint_; }

  // Overwrites a weight with f32 values, converted to its dtype.
  void set(const std::string& name, const std::vector<float>& values);

 private:
  void add(const std::string& name, DType dtype, int64_t rows, int64_t columns, float spread,
           float mean);

  const TinyModel model_;
  const std::string path_ = "tiny model in memory", format_ = "memory";
  std::string fingerprint_;
  std::vector<WeightInfo> weights_;
  std::vector<std::vector<std::byte>> data_;
  std::atomic<int64_t> bytes_read_{0};
  uint64_t random_;
};

// One block after the other; n is a multiple of 32 for quantised types.
std::vector<std::byte> quantize(DType dtype, const std::vector<float>& values);

}  // namespace cohort::testing
