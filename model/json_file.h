// SPDX-License-Identifier: Apache-2.0
// JSON from files that nobody vouches for.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/status.h"

namespace cohort {

// Bounded: larger or more deeply nested input is refused before it is parsed. Errors do not name
// the file: read_json_file's do.
struct JsonLimits {
  size_t bytes = 64 << 20;
  int depth = 64;
};
Result<nlohmann::json> parse_json(std::string_view text, const JsonLimits& limits = {});
Result<nlohmann::json> read_json_file(const std::string& path, const JsonLimits& limits = {});

}  // namespace cohort
