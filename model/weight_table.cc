// SPDX-License-Identifier: Apache-2.0
#include "model/weight_table.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <unordered_set>

namespace cohort {
namespace {

constexpr std::string_view kNumber = "{}";

bool has_number(std::string_view pattern) { return pattern.find(kNumber) != pattern.npos; }

std::string with_number(std::string_view pattern, int64_t number) {
  std::string text(pattern);
  const size_t at = text.find(kNumber);
  if (at != std::string::npos) text.replace(at, kNumber.size(), std::to_string(number));
  return text;
}

// "a.{}.b" matches "a.12.b".
bool matches(std::string_view pattern, std::string_view name) {
  const size_t at = pattern.find(kNumber);
  if (at == std::string_view::npos) return pattern == name;
  const std::string_view before = pattern.substr(0, at);
  const std::string_view after = pattern.substr(at + kNumber.size());
  if (name.size() <= before.size() + after.size()) return false;
  const std::string_view number =
      name.substr(before.size(), name.size() - before.size() - after.size());
  return name.starts_with(before) && name.ends_with(after) &&
         number.find_first_not_of("0123456789") == std::string_view::npos;
}

// Whether `name` belongs to one of the layers behind those that are computed.
bool is_draft(std::string_view name, const ModelConfig& config) {
  constexpr std::string_view kBefore = "model.layers.";
  if (!name.starts_with(kBefore)) return false;
  name.remove_prefix(kBefore.size());
  int64_t layer = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
  return error == std::errc() && end != name.data() + name.size() && *end == '.' &&
         layer >= config.layers && layer < config.layers + config.draft_layers;
}

std::string to_text(const std::vector<int64_t>& shape) {
  std::string text;
  for (const int64_t n : shape) text += (text.empty() ? "[" : ", ") + std::to_string(n);
  return text.empty() ? "[]" : text + "]";
}

class Binder {
 public:
  Binder(const Family& family, const ModelConfig& config, FileFormat format,
         std::span<const StoredTensor> stored)
      : family_(family), config_(config), format_(format) {
    for (const StoredTensor& tensor : stored) by_name_.emplace(tensor.name, &tensor);
  }

  // The rules come as those before the layers, those of one layer, those after.
  Status bind_all() {
    const auto& rules = family_.tensors;
    for (size_t i = 0; i < rules.size();) {
      if (!has_number(rules[i].name)) {
        COHORT_RETURN_IF_ERROR(bind(rules[i++], 0));
        continue;
      }
      size_t end = i;
      while (end < rules.size() && has_number(rules[end].name)) end++;
      for (int64_t layer = 0; layer < config_.layers; layer++)
        for (size_t rule = i; rule < end; rule++) COHORT_RETURN_IF_ERROR(bind(rules[rule], layer));
      i = end;
    }
    return refuse_strangers();
  }

  std::vector<BoundWeight>& weights() { return weights_; }

 private:
  // Shape and type of one weight that a tensor holds, and how many it holds.
  struct Part {
    WeightInfo info;
    bool vector = false;
    int64_t stacked = 0;  // weights in the tensor, as its outermost dimension; 0: it is one weight
  };

  Status bind(const TensorRule& rule, int64_t layer) {
    if (rule.in_layer && !rule.in_layer(config_, layer)) return {};
    const std::string name = with_number(rule.name, layer);
    const std::string source =
        with_number(format_ == FileFormat::gguf ? rule.gguf : rule.safetensors, layer);
    Part part;
    part.info.rows = size_of(rule.rows, config_);
    part.info.columns = size_of(rule.columns, config_);
    part.vector = rule.rows == Extent::one;
    if (format_ == FileFormat::gguf && !rule.gguf_keys.empty() && !by_name_.contains(source))
      return bind_parts(name, with_number(rule.gguf_keys, layer),
                        with_number(rule.gguf_values, layer));
    if (!has_number(name)) return bind_one(name, source, part, rule.absent_when_tied);
    if (!has_number(source)) return bind_stacked(name, source, part);
    for (int64_t expert = 0; expert < config_.experts.count; expert++)
      COHORT_RETURN_IF_ERROR(
          bind_one(with_number(name, expert), with_number(source, expert), part, false));
    return {};
  }

  Status bind_one(const std::string& name, const std::string& source, Part part,
                  bool absent_when_tied) {
    used_.insert(source);
    // Files of tied models may store the table twice.
    if (absent_when_tied && config_.tied_embedding) return {};
    COHORT_ASSIGN_OR_RETURN(const StoredTensor* tensor, find(source, part));
    add(name, source, part, tensor->data);
    return {};
  }

  // Experts' matrices of one kind, one behind the other: each becomes a weight of its own.
  Status bind_stacked(const std::string& name, const std::string& source, Part part) {
    used_.insert(source);
    part.stacked = config_.experts.count;
    COHORT_ASSIGN_OR_RETURN(const StoredTensor* tensor, find(source, part));
    const size_t bytes = size_t(part.info.bytes());
    for (int64_t expert = 0; expert < part.stacked; expert++)
      add(with_number(name, expert), source, part,
          tensor->data.subspan(size_t(expert) * bytes, bytes));
    return {};
  }

  // kv_up from its two parts.
  Status bind_parts(const std::string& name, const std::string& keys, const std::string& values) {
    used_.insert(keys);
    used_.insert(values);
    const LatentConfig& latent = config_.latent;
    Part key, value;
    key.stacked = value.stacked = config_.heads;
    key.info.rows = value.info.columns = latent.kv_rank;
    key.info.columns = latent.nope_dim;
    value.info.rows = latent.value_dim;
    COHORT_ASSIGN_OR_RETURN(const StoredTensor* key_tensor, find(keys, key));
    COHORT_ASSIGN_OR_RETURN(const StoredTensor* value_tensor, find(values, value));
    Part whole;
    whole.info.dtype = DType::f32;
    whole.info.rows = size_of(Extent::kv_up, config_);
    whole.info.columns = latent.kv_rank;
    add(name, keys, whole, key_tensor->data);
    weights_.back().parts =
        LatentParts{key.info.dtype,  value.info.dtype, key_tensor->data, value_tensor->data,
                    latent.nope_dim, latent.value_dim, latent.kv_rank};
    return {};
  }

  void add(std::string name, const std::string& source, const Part& part,
           std::span<const std::byte> data) {
    BoundWeight weight{.info = part.info, .data = data};
    weight.info.name = std::move(name);
    weight.info.source_name = source;
    weights_.push_back(std::move(weight));
  }

  // The tensor, which holds what `part` says; sets the part's type.
  Result<const StoredTensor*> find(const std::string& source, Part& part) const {
    const auto found = by_name_.find(source);
    if (found == by_name_.end())
      return invalid_argument(concat("tensor '", source, "' is missing"));
    COHORT_RETURN_IF_ERROR(check_shape(*found->second, part));
    COHORT_RETURN_IF_ERROR(check_type(*found->second, part));
    return found->second;
  }

  static Status check_shape(const StoredTensor& tensor, const Part& part) {
    std::vector<int64_t> expected{part.info.columns};
    if (!part.vector) expected.insert(expected.begin(), part.info.rows);
    if (part.stacked != 0) expected.insert(expected.begin(), part.stacked);
    if (tensor.shape == expected) return {};
    // A gate of one row is a vector to us.
    if (part.vector && tensor.shape == std::vector<int64_t>{1, part.info.columns}) return {};
    return invalid_argument(concat("tensor '", tensor.name, "' has shape ", to_text(tensor.shape),
                                   "; by the model's settings it should have ", to_text(expected)));
  }

  static Status check_type(const StoredTensor& tensor, Part& part) {
    WeightInfo& info = part.info;
    const std::optional<DType> type = tensor.dtype;
    const bool usable = type && *type != DType::i32 && *type != DType::i8 &&
                        *type != DType::f8_e4m3 && (!part.vector || !is_quantized(*type));
    if (!usable)
      return unimplemented(concat("tensor '", tensor.name, "' has type ", tensor.type_name,
                                  ", which is not supported there"));
    if (info.columns % cohort::info(*type).block_elements != 0)
      return invalid_argument(concat("tensor '", tensor.name, "': rows of ", info.columns,
                                     " are not whole blocks of type ", name(*type)));
    info.dtype = *type;
    const uint64_t needed = uint64_t(info.bytes()) * uint64_t(std::max<int64_t>(part.stacked, 1));
    if (needed != tensor.data.size())
      return invalid_argument(concat("tensor '", tensor.name, "' has ", tensor.data.size(),
                                     " bytes and needs ", needed));
    return {};
  }

  Status refuse_strangers() const {
    for (const auto& [name, tensor] : by_name_) {
      if (used_.contains(std::string(name))) continue;
      bool ignored = is_draft(name, config_);
      for (const std::string_view pattern : family_.ignored)
        ignored = ignored || matches(pattern, name);
      if (!ignored)
        return unimplemented(concat("tensor '", name, "' is no part of a model of family '",
                                    family_.name, "' (biases, adapters and additional layers are ",
                                    "not supported)"));
    }
    return {};
  }

  const Family& family_;
  const ModelConfig& config_;
  const FileFormat format_;
  std::map<std::string_view, const StoredTensor*> by_name_;
  std::unordered_set<std::string> used_;
  std::vector<BoundWeight> weights_;
};

}  // namespace

Result<std::vector<BoundWeight>> bind_weights(const Family& family, const ModelConfig& config,
                                              FileFormat format,
                                              std::span<const StoredTensor> stored) {
  Binder binder(family, config, format, stored);
  COHORT_RETURN_IF_ERROR(binder.bind_all());
  return std::move(binder.weights());
}

}  // namespace cohort
