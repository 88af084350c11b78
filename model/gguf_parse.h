// SPDX-License-Identifier: Apache-2.0
// The byte-level reader behind GgufFile: everything that a GGUF file says, checked, as values.
#pragma once
#include <cstddef>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/gguf.h"

namespace cohort {

struct GgufContents {
  int version = 0;
  std::map<std::string, GgufValue, std::less<>> metadata;  // strings are views of the input
  std::vector<GgufTensor> tensors;                         // in the order of the file
};

// name: how errors call the input, usually its path. The result views `bytes`.
Result<GgufContents> parse_gguf(std::span<const std::byte> bytes, const std::string& name);

}  // namespace cohort
