// SPDX-License-Identifier: Apache-2.0
#include "tools/trace_merge.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "base/check.h"

namespace cohort {
namespace {

using Json = nlohmann::ordered_json;

struct Part {
  Json trace;
  int64_t start_ns = 0;
};

bool is_event(const Json& event) {
  return event.is_object() && event.contains("ph") && event.contains("pid") &&
         (!event.contains("ts") || event["ts"].is_number());
}

Result<Part> parse(const std::string& text, const std::string& name) {
  Part part;
  part.trace = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  const Status wrong = invalid_argument(name + " is not a trace that a rank wrote");
  if (!part.trace.is_object() || !part.trace.contains("traceEvents") ||
      !part.trace["traceEvents"].is_array() || !part.trace.contains("otherData"))
    return wrong;
  const Json& other = part.trace["otherData"];
  if (!other.is_object() || !other.contains("start_ns") || !other["start_ns"].is_string())
    return wrong;
  const std::string start = other["start_ns"].get<std::string>();
  const auto read = std::from_chars(start.data(), start.data() + start.size(), part.start_ns);
  if (read.ec != std::errc{} || !std::ranges::all_of(part.trace["traceEvents"], is_event))
    return wrong;
  return part;
}

}  // namespace

Result<std::string> merge_traces(const std::vector<std::string>& texts,
                                 const std::vector<std::string>& names) {
  COHORT_CHECK_EQ(texts.size(), names.size());
  if (texts.empty()) return invalid_argument("there is no trace to merge");
  std::vector<Part> parts;
  for (size_t i = 0; i < texts.size(); i++) {
    COHORT_ASSIGN_OR_RETURN(Part part, parse(texts[i], names[i]));
    parts.push_back(std::move(part));
  }
  const int64_t start = std::ranges::min(parts, {}, &Part::start_ns).start_ns;
  Json events = Json::array();
  for (size_t i = 0; i < parts.size(); i++)
    for (Json& event : parts[i].trace["traceEvents"]) {
      // Ranks of several replicas have the same numbers.
      event["pid"] = i;
      if (event.contains("ts"))
        event["ts"] = event["ts"].get<double>() + double(parts[i].start_ns - start) / 1000;
      events.push_back(std::move(event));
    }
  const Json merged = {{"displayTimeUnit", "ms"},
                       {"otherData", {{"start_ns", std::to_string(start)}}},
                       {"traceEvents", std::move(events)}};
  return merged.dump() + "\n";
}

}  // namespace cohort
