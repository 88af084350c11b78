// SPDX-License-Identifier: Apache-2.0
// A config.json that is accepted makes sense: heads divide, frequencies are finite.
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/log.h"
#include "model/families.h"
#include "model/json_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  static const bool quiet = [] {
    cohort::configure_log("fuzz", cohort::LogLevel::error);
    return true;
  }();
  if (!quiet) return 0;
  const auto value = cohort::parse_json({reinterpret_cast<const char*>(bytes), size});
  if (!value.ok()) return 0;
  const auto known = cohort::recognise(*value);
  if (!known.ok()) return 0;
  const cohort::ModelConfig& config = known->config;
  if (config.heads % config.kv_heads != 0 || config.head_dim < 1 || config.context < 1 ||
      config.vocab < 1 || config.layers < 1)
    std::abort();
  for (const double frequency : cohort::rope_frequencies(config.rope))
    if (!std::isfinite(frequency)) std::abort();
  return 0;
}
