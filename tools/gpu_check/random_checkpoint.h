// SPDX-License-Identifier: Apache-2.0
// A model of any size without files: every matrix is made of a few dozen random rows, in turn, so
// that gigabytes of weights cost no more than copying them.
#pragma once
#include <atomic>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "model/checkpoint.h"

namespace cohort::gpu_check {

// Llama-3-8B, and one of the same kind that an emulated device computes quickly.
ModelConfig llama_8b();
ModelConfig small_llama();

class RandomCheckpoint : public Checkpoint {
 public:
  // matrices: f32, f16, bf16, q8_0, q4_0 or q4_1.
  RandomCheckpoint(const ModelConfig& config, DType matrices);

  const std::string& path() const override { return path_; }
  const std::string& format() const override { return format_; }
  const ModelConfig& config() const override { return config_; }
  const std::vector<WeightInfo>& weights() const override { return weights_; }
  Status read(const WeightInfo& weight, int64_t row_begin, int64_t row_end, int64_t column_begin,
              int64_t column_end, std::byte* out) override;
  int64_t bytes_read() const override { return bytes_read_; }
  int64_t total_weight_bytes() const override;
  Result<std::unique_ptr<Tokenizer>> tokenizer() const override;
  const std::string& fingerprint() const override { return fingerprint_; }

 private:
  static constexpr int64_t kDistinct = 61;  // rows; no power of two, so that tiles differ

  void add(const std::string& name, DType dtype, int64_t rows, int64_t columns);

  const ModelConfig config_;
  const std::string path_ = "random weights", format_ = "memory";
  std::string fingerprint_;
  std::vector<WeightInfo> weights_;
  std::map<std::pair<DType, int64_t>, std::vector<std::byte>> rows_;  // by type and columns
  std::atomic<int64_t> bytes_read_{0};
};

}  // namespace cohort::gpu_check
