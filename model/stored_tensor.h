// SPDX-License-Identifier: Apache-2.0
// A tensor as a checkpoint file declares it, before anyone knows what it is for.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"

namespace cohort {

struct StoredTensor {
  std::string name;
  std::string type_name;            // as in the file: "BF16"
  std::optional<DType> dtype;       // absent for types that Cohort does not compute with
  std::vector<int64_t> shape;       // outermost first
  std::span<const std::byte> data;  // views the file
};

}  // namespace cohort
