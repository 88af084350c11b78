// SPDX-License-Identifier: Apache-2.0
// The JSON of a safetensors file, read token by token: no tree is built, so that a hostile header
// costs no more than its own size.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/safetensors.h"

namespace cohort {

// One entry as written, types right but values unchecked (shape: not negative).
struct HeaderEntry {
  std::string name;
  std::string type_name;
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;  // data_offsets
};

// "__metadata__" is passed over. Errors name the tensor.
Result<std::vector<HeaderEntry>> read_safetensors_header(std::string_view json,
                                                         const SafetensorsLimits& limits);

}  // namespace cohort
