// SPDX-License-Identifier: Apache-2.0
// The Checkpoint that both formats become once their files are mapped and their tensors bound.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "model/checkpoint.h"
#include "model/weight_table.h"

namespace cohort {

class MappedCheckpoint : public Checkpoint {
 public:
  struct Parts {
    std::string path, format;
    ModelConfig config;
    std::vector<BoundWeight> weights;
    std::shared_ptr<const void> files;  // keeps what the weights view
    std::function<Result<std::unique_ptr<Tokenizer>>()> load_tokenizer;
  };
  explicit MappedCheckpoint(Parts parts);

  const std::string& path() const override { return parts_.path; }
  const std::string& format() const override { return parts_.format; }
  const ModelConfig& config() const override { return parts_.config; }
  const std::vector<WeightInfo>& weights() const override { return infos_; }
  const WeightInfo* find(std::string_view name) const override;
  Status read(const WeightInfo& weight, int64_t row_begin, int64_t row_end, int64_t column_begin,
              int64_t column_end, std::byte* out) override;
  void will_read(const WeightInfo& weight, int64_t row_begin, int64_t row_end) override;
  void have_read(const WeightInfo& weight, int64_t row_begin, int64_t row_end) override;
  int64_t bytes_read() const override { return bytes_read_; }
  int64_t total_weight_bytes() const override { return total_bytes_; }
  Result<std::unique_ptr<Tokenizer>> tokenizer() const override { return parts_.load_tokenizer(); }
  const std::string& fingerprint() const override { return fingerprint_; }

 private:
  // Whole rows as they are stored; nothing for what is made from several tensors.
  std::span<const std::byte> stored_rows(const WeightInfo& weight, int64_t begin,
                                         int64_t end) const;

  const Parts parts_;
  std::vector<WeightInfo> infos_;
  std::unordered_map<std::string_view, size_t> by_name_;  // places in parts_ and infos_
  int64_t total_bytes_ = 0;
  std::string fingerprint_;
  std::atomic<int64_t> bytes_read_{0};
};

// path: a .gguf file.
Result<std::unique_ptr<Checkpoint>> open_gguf_checkpoint(const std::string& path);

// folder: holds config.json and tokenizer.json. file: the weights, a .safetensors file or an index
// (*.index.json) that names several; path: what the user asked for.
Result<std::unique_ptr<Checkpoint>> open_safetensors_checkpoint(const std::string& path,
                                                                const std::string& folder,
                                                                const std::string& file);

}  // namespace cohort
