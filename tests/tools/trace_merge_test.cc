// SPDX-License-Identifier: Apache-2.0
#include "tools/trace_merge.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace cohort {
namespace {

using Json = nlohmann::json;

std::string trace_of(const std::string& process, const std::string& start_ns, double ts) {
  return Json{
      {"displayTimeUnit", "ms"},
      {"otherData", {{"start_ns", start_ns}}},
      {"traceEvents",
       {{{"ph", "M"}, {"name", "process_name"}, {"pid", 0}, {"args", {{"name", process}}}},
        {{"ph", "X"}, {"name", "attention"}, {"pid", 0}, {"tid", 1}, {"ts", ts}, {"dur", 2}}}}}
      .dump();
}

TEST(TraceMergeTest, EachTraceBecomesAProcessOnOneTimeLine) {
  const auto merged = merge_traces({trace_of("replica-0 rank 0 on a", "2000000", 5),
                                    trace_of("replica-1 rank 0 on b", "1500000", 7)},
                                   {"x.0.json", "y.0.json"});
  ASSERT_TRUE(merged.ok()) << merged.status().to_string();
  const Json events = Json::parse(*merged)["traceEvents"];
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[0]["args"]["name"], "replica-0 rank 0 on a");
  EXPECT_EQ(events[0]["pid"], 0);
  EXPECT_EQ(events[1]["ts"], 505);
  EXPECT_EQ(events[2]["args"]["name"], "replica-1 rank 0 on b");
  EXPECT_EQ(events[3]["pid"], 1);
  EXPECT_EQ(events[3]["ts"], 7);
  EXPECT_EQ(events[3]["dur"], 2);
}

TEST(TraceMergeTest, WhatIsNotATraceIsRefusedByName) {
  for (const char* text :
       {"", "[]", "{}", R"({"otherData":{},"traceEvents":[]})",
        R"({"otherData":{"start_ns":"x"},"traceEvents":[]})",
        R"({"otherData":{"start_ns":"1"},"traceEvents":[1]})",
        R"({"otherData":{"start_ns":"1"},"traceEvents":[{"ph":"X","pid":0,"ts":"soon"}]})"}) {
    const auto merged = merge_traces({text}, {"wrong.json"});
    ASSERT_FALSE(merged.ok()) << text;
    EXPECT_NE(merged.status().message().find("wrong.json"), std::string::npos);
  }
  EXPECT_FALSE(merge_traces({}, {}).ok());
}

}  // namespace
}  // namespace cohort
