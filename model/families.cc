// SPDX-License-Identifier: Apache-2.0
#include "model/families.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace cohort {
namespace {

std::vector<const Family*> families() { return {&llama_family()}; }

using Names = std::vector<std::string_view> Family::*;

Result<const Family*> family_of(std::string_view architecture, Names names) {
  std::string known;
  for (const Family* family : families())
    for (const std::string_view name : family->*names) {
      if (name == architecture) return family;
      known += concat(known.empty() ? "" : ", ", name);
    }
  return unimplemented(
      concat("architecture '", architecture, "' is not supported; supported are: ", known));
}

Status check_rope(const RopeConfig& rope, int64_t head_dim) {
  if (rope.dims < 2 || rope.dims % 2 != 0 || rope.dims > head_dim)
    return invalid_argument(concat("rotation of ", rope.dims, " of ", head_dim,
                                   " dimensions of a head: needs an even number within the head"));
  const auto usable = [](double x) { return std::isfinite(x) && x > 0; };
  bool good = usable(rope.theta) && usable(rope.linear_factor);
  if (rope.llama3)
    good = good && usable(rope.llama3->factor) && usable(rope.llama3->low_freq_factor) &&
           rope.llama3->original_context > 0 && std::isfinite(rope.llama3->high_freq_factor) &&
           rope.llama3->high_freq_factor > rope.llama3->low_freq_factor;
  for (const float divisor : rope.frequency_divisors) good = good && usable(divisor);
  if (!good) return invalid_argument("the settings of the rotary embedding are out of range");
  const size_t divisors = rope.frequency_divisors.size();
  if (divisors != 0 && divisors != size_t(rope.dims / 2))
    return invalid_argument(
        concat(divisors, " rope frequencies for ", rope.dims, " rotated dimensions"));
  for (const double frequency : rope_frequencies(rope))
    if (!std::isfinite(frequency))
      return invalid_argument("the settings of the rotary embedding leave no finite frequency");
  return {};
}

// Relations that hold in every family.
Status check_config(const ModelConfig& c) {
  if (c.heads % c.kv_heads != 0)
    return invalid_argument(
        concat(c.heads, " query heads cannot be shared out to ", c.kv_heads, " key-value heads"));
  if (c.head_dim < 1) return invalid_argument("heads have no dimensions");
  if (!(c.norm_eps > 0 && c.norm_eps < 1))
    return invalid_argument(concat("epsilon of the norms is ", c.norm_eps));
  return check_rope(c.rope, c.head_dim);
}

Result<KnownModel> checked(const Family& family, Result<ModelConfig> config) {
  if (!config.ok()) return config.status();
  config->family = std::string(family.name);
  COHORT_RETURN_IF_ERROR(check_config(*config));
  return KnownModel{&family, *std::move(config)};
}

}  // namespace

int64_t size_of(Extent extent, const ModelConfig& config) {
  switch (extent) {
    case Extent::one:
      return 1;
    case Extent::hidden:
      return config.hidden;
    case Extent::ffn:
      return config.ffn;
    case Extent::vocab:
      return config.vocab;
    case Extent::queries:
      return config.heads * config.head_dim;
    case Extent::keys:
      return config.kv_heads * config.head_dim;
  }
  return 0;
}

Result<KnownModel> recognise(const GgufFile& file) {
  const std::optional<std::string_view> architecture = file.string("general.architecture");
  if (!architecture) return invalid_argument("setting 'general.architecture' is missing");
  COHORT_ASSIGN_OR_RETURN(const Family* family,
                          family_of(*architecture, &Family::gguf_architectures));
  return checked(*family, family->from_gguf(file));
}

Result<KnownModel> recognise(const nlohmann::json& config) {
  if (!config.is_object()) return invalid_argument("not a JSON object");
  const auto found = config.find("architectures");
  if (found == config.end() || !found->is_array() || found->size() != 1 ||
      !found->front().is_string())
    return invalid_argument("setting 'architectures' must name one architecture");
  const std::string architecture = found->front().get<std::string>();
  COHORT_ASSIGN_OR_RETURN(const Family* family, family_of(architecture, &Family::architectures));
  return checked(*family, family->from_json(config, architecture));
}

}  // namespace cohort
