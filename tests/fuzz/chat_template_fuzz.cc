// SPDX-License-Identifier: Apache-2.0
// Any source may be refused or rendered; it must end soon and mark ranges inside its text.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/check.h"
#include "model/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using Json = nlohmann::ordered_json;
  static const Json messages = Json::parse(
      R"([{"role": "system", "content": "a <b>"}, {"role": "user", "content": [{"text": "é"}],
           "n": [1, 2.5, null, true]}])");
  const cohort::TemplateLimits limits{
      .steps = 20'000, .depth = 50, .output_bytes = 1 << 16, .source_bytes = 1 << 14};
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  const auto parsed = cohort::ChatTemplate::parse(source, limits);
  if (!parsed.ok()) return 0;
  const auto rendered = (*parsed)->render({.messages = messages, .tools = &messages});
  if (!rendered.ok()) return 0;
  size_t at = 0;
  for (const cohort::TextRange& range : rendered->literal) {
    COHORT_CHECK_LE(at, range.begin);
    COHORT_CHECK_LT(range.begin, range.end);
    at = range.end;
  }
  COHORT_CHECK_LE(at, rendered->text.size());
  return 0;
}
