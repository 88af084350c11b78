// SPDX-License-Identifier: Apache-2.0
#include "model/weight_table.h"

#include <map>
#include <unordered_set>

namespace cohort {
namespace {

constexpr std::string_view kLayer = "{}";

std::string with_layer(std::string_view pattern, int64_t layer) {
  std::string text(pattern);
  const size_t at = text.find(kLayer);
  if (at != std::string::npos) text.replace(at, kLayer.size(), std::to_string(layer));
  return text;
}

// "a.{}.b" matches "a.12.b".
bool matches(std::string_view pattern, std::string_view name) {
  const size_t at = pattern.find(kLayer);
  if (at == std::string_view::npos) return pattern == name;
  const std::string_view before = pattern.substr(0, at), after = pattern.substr(at + kLayer.size());
  if (name.size() <= before.size() + after.size()) return false;
  const std::string_view number =
      name.substr(before.size(), name.size() - before.size() - after.size());
  return name.starts_with(before) && name.ends_with(after) &&
         number.find_first_not_of("0123456789") == std::string_view::npos;
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
      if (rules[i].name.find(kLayer) == std::string_view::npos) {
        COHORT_RETURN_IF_ERROR(bind(rules[i++], 0));
        continue;
      }
      size_t end = i;
      while (end < rules.size() && rules[end].name.find(kLayer) != std::string_view::npos) end++;
      for (int64_t layer = 0; layer < config_.layers; layer++)
        for (size_t rule = i; rule < end; rule++) COHORT_RETURN_IF_ERROR(bind(rules[rule], layer));
      i = end;
    }
    return refuse_strangers();
  }

  std::vector<BoundWeight>& weights() { return weights_; }

 private:
  Status bind(const TensorRule& rule, int64_t layer) {
    const std::string_view pattern = format_ == FileFormat::gguf ? rule.gguf : rule.safetensors;
    const std::string source = with_layer(pattern, layer);
    used_.insert(source);
    // Files of tied models may store the table twice.
    if (rule.absent_when_tied && config_.tied_embedding) return {};
    const auto found = by_name_.find(source);
    if (found == by_name_.end())
      return invalid_argument(concat("tensor '", source, "' is missing"));
    const StoredTensor& tensor = *found->second;
    BoundWeight weight;
    weight.info.name = with_layer(rule.name, layer);
    weight.info.source_name = source;
    weight.info.rows = size_of(rule.rows, config_);
    weight.info.columns = size_of(rule.columns, config_);
    COHORT_RETURN_IF_ERROR(check_shape(rule, tensor, weight.info));
    COHORT_RETURN_IF_ERROR(check_type(rule, tensor, weight.info));
    weight.data = tensor.data;
    weights_.push_back(std::move(weight));
    return {};
  }

  static Status check_shape(const TensorRule& rule, const StoredTensor& tensor,
                            const WeightInfo& info) {
    std::vector<int64_t> expected{info.columns};
    if (rule.rows != Extent::one) expected.insert(expected.begin(), info.rows);
    if (tensor.shape == expected) return {};
    return invalid_argument(concat("tensor '", tensor.name, "' has shape ", to_text(tensor.shape),
                                   "; by the model's settings it should have ", to_text(expected)));
  }

  static Status check_type(const TensorRule& rule, const StoredTensor& tensor, WeightInfo& info) {
    const std::optional<DType> type = tensor.dtype;
    const bool usable = type && *type != DType::i32 && *type != DType::i8 &&
                        *type != DType::f8_e4m3 &&
                        (rule.rows != Extent::one || !is_quantized(*type));
    if (!usable)
      return unimplemented(concat("tensor '", tensor.name, "' has type ", tensor.type_name,
                                  ", which is not supported there"));
    if (info.columns % cohort::info(*type).block_elements != 0)
      return invalid_argument(concat("tensor '", tensor.name, "': rows of ", info.columns,
                                     " are not whole blocks of type ", name(*type)));
    info.dtype = *type;
    if (uint64_t(info.bytes()) != tensor.data.size())
      return invalid_argument(concat("tensor '", tensor.name, "' has ", tensor.data.size(),
                                     " bytes and needs ", info.bytes()));
    return {};
  }

  Status refuse_strangers() const {
    for (const auto& [name, tensor] : by_name_) {
      if (used_.contains(std::string(name))) continue;
      bool ignored = false;
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
