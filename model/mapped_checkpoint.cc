// SPDX-License-Identifier: Apache-2.0
#include "model/mapped_checkpoint.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "base/mapped_file.h"
#include "base/sha256.h"

namespace cohort {
namespace {

// What a fingerprint takes from each end of a tensor: one page, so that fingerprinting a large
// checkpoint reads a few megabytes. Not counted in bytes_read().
constexpr size_t kSampleBytes = 4096;

// Who reads less at once says will_read(), or does not mind.
constexpr size_t kReadAheadBytes = size_t(1) << 20;

// All that gives the weights their meaning, in a fixed form. The name is for people only.
std::string canonical_text(const ModelConfig& c) {
  std::string text =
      concat("cohort-model-1 family=", c.family, " hidden=", c.hidden, " layers=", c.layers,
             " heads=", c.heads, " kv_heads=", c.kv_heads, " head_dim=", c.head_dim, " ffn=", c.ffn,
             " vocab=", c.vocab, " context=", c.context, " tied=", c.tied_embedding,
             " pairing=", int(c.rope.pairing), " rotated=", c.rope.dims);
  const ExpertsConfig& e = c.experts;
  text += concat(" qkv_bias=", c.qkv_bias, " qk_norm=", int(c.query_key_norm), " experts=", e.count,
                 " per_token=", e.per_token, " expert_ffn=", e.ffn, " shared_ffn=", e.shared_ffn,
                 " shared_gate=", e.shared_gate, " score=", int(e.score),
                 " choice_bias=", e.choice_bias, " groups=", e.groups,
                 " groups_per_token=", e.groups_per_token, " group_score=", int(e.group_score),
                 " normalise=", e.normalise, " dense=");
  for (const int64_t layer : e.dense_layers) text += concat(layer, ",");
  const LatentConfig& l = c.latent;
  text += concat(" q_rank=", l.q_rank, " kv_rank=", l.kv_rank, " nope=", l.nope_dim,
                 " rope=", l.rope_dim, " value=", l.value_dim);
  const auto add = [&text](const char* key, double value) {
    char number[64];
    std::snprintf(number, sizeof number, " %s=%a", key, value);
    text += number;
  };
  add("eps", c.norm_eps);
  add("score_scale", c.score_scale);
  add("turned", c.rope.yarn ? c.rope.yarn->attention_factor : 1);
  add("experts_scale", c.experts.scale);
  // The frequencies say all that theta and the scalings say.
  for (const double frequency : rope_frequencies(c.rope)) add("f", frequency);
  return text;
}

std::string fingerprint_of(const ModelConfig& config, const std::vector<BoundWeight>& weights) {
  Sha256 hash;
  hash.update(canonical_text(config));
  const auto sample = [&hash](std::span<const std::byte> data) {
    const size_t size = std::min(kSampleBytes, data.size());
    hash.update(data.first(size)).update(data.last(size));
  };
  for (const BoundWeight& weight : weights) {
    hash.update(concat("\n", weight.info.name, " ", name(weight.info.dtype), " ", weight.info.rows,
                       " ", weight.info.columns, "\n"));
    sample(weight.data);
    if (weight.parts) sample(weight.parts->values);
  }
  return to_hex(hash.finish());
}

// "weight 'x': rows [3, 5) of 4"
Status out_of_range(const WeightInfo& info, const char* what, int64_t begin, int64_t end,
                    int64_t size) {
  return invalid_argument(
      concat("weight '", info.name, "': ", what, " [", begin, ", ", end, ") of ", size));
}

}  // namespace

MappedCheckpoint::MappedCheckpoint(Parts parts) : parts_(std::move(parts)) {
  for (const BoundWeight& weight : parts_.weights) {
    infos_.push_back(weight.info);
    by_name_.emplace(weight.info.name, by_name_.size());
    total_bytes_ += weight.info.bytes();
  }
  fingerprint_ = fingerprint_of(parts_.config, parts_.weights);
}

const WeightInfo* MappedCheckpoint::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &infos_[found->second];
}

Status MappedCheckpoint::read(const WeightInfo& weight, int64_t row_begin, int64_t row_end,
                              int64_t column_begin, int64_t column_end, std::byte* out) {
  const auto found = by_name_.find(weight.name);
  if (found == by_name_.end()) return not_found(concat(path(), ": no weight '", weight.name, "'"));
  const BoundWeight& stored = parts_.weights[found->second];
  const WeightInfo& info = stored.info;
  if (row_begin < 0 || row_begin > row_end || row_end > info.rows)
    return out_of_range(info, "rows", row_begin, row_end, info.rows);
  const int64_t block = cohort::info(info.dtype).block_elements;
  if (column_begin < 0 || column_begin > column_end || column_end > info.columns ||
      column_begin % block != 0 || column_end % block != 0)
    return out_of_range(info, "columns", column_begin, column_end, info.columns);

  const size_t stride = size_t(bytes_of(info.dtype, info.columns));
  const size_t offset = size_t(bytes_of(info.dtype, column_begin));
  const size_t width = size_t(bytes_of(info.dtype, column_end - column_begin));
  const size_t rows = size_t(row_end - row_begin);
  if (stored.parts) {
    read_latent_parts(*stored.parts, row_begin, row_end, column_begin, column_end, out);
    bytes_read_ += int64_t(rows * width);
    return {};
  }
  const std::byte* first = stored.data.data() + size_t(row_begin) * stride + offset;
  if (rows == 0 || width == 0) return {};
  if (width == stride) {
    if (rows * stride >= kReadAheadBytes) read_ahead({first, rows * stride});
    std::memcpy(out, first, rows * stride);
  } else {
    for (size_t row = 0; row < rows; row++)
      std::memcpy(out + row * width, first + row * stride, width);
  }
  bytes_read_ += int64_t(rows * width);
  return {};
}

std::span<const std::byte> MappedCheckpoint::stored_rows(const WeightInfo& weight, int64_t begin,
                                                         int64_t end) const {
  const auto found = by_name_.find(weight.name);
  if (found == by_name_.end()) return {};
  const BoundWeight& stored = parts_.weights[found->second];
  if (stored.parts || begin < 0 || begin > end || end > stored.info.rows) return {};
  const size_t stride = size_t(bytes_of(stored.info.dtype, stored.info.columns));
  return stored.data.subspan(size_t(begin) * stride, size_t(end - begin) * stride);
}

void MappedCheckpoint::will_read(const WeightInfo& weight, int64_t row_begin, int64_t row_end) {
  read_ahead(stored_rows(weight, row_begin, row_end));
}

void MappedCheckpoint::have_read(const WeightInfo& weight, int64_t row_begin, int64_t row_end) {
  let_go(stored_rows(weight, row_begin, row_end));
}

}  // namespace cohort
