// SPDX-License-Identifier: Apache-2.0
#include "model/json_file.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/mapped_file.h"

namespace cohort {
namespace {

using nlohmann::json;

// Depth of brackets outside of strings. Correct for valid JSON, which is all that matters: the
// parser refuses the rest.
int depth_of(std::string_view text) {
  int depth = 0, deepest = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); i++) {
    const char c = text[i];
    if (in_string && c == '\\')
      i++;
    else if (c == '"')
      in_string = !in_string;
    else if (!in_string && (c == '{' || c == '['))
      deepest = std::max(deepest, ++depth);
    else if (!in_string && (c == '}' || c == ']'))
      depth--;
  }
  return deepest;
}

}  // namespace

Result<json> parse_json(std::string_view text, const JsonLimits& limits) {
  if (text.size() > limits.bytes)
    return resource_exhausted(concat("JSON of ", text.size(), " bytes; at most ", limits.bytes));
  if (depth_of(text) > limits.depth)
    return resource_exhausted(concat("JSON nested more than ", limits.depth, " deep"));
  json value = json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (value.is_discarded()) return invalid_argument("not valid JSON");
  return value;
}

Result<json> read_json_file(const std::string& path, const JsonLimits& limits) {
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<MappedFile> file, MappedFile::open(path));
  const std::span<const std::byte> bytes = file->bytes();
  Result<json> value =
      parse_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, limits);
  if (!value.ok()) return value.status().annotate(path);
  return value;
}

}  // namespace cohort
