// SPDX-License-Identifier: Apache-2.0
// The traces of a replica's ranks, read back: valid, nested, and with everything that was asked for
// in them.
#include "worker/trace.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/support/replay.h"
#include "tests/support/tiny_checkpoint.h"
#include "tests/worker/requests.h"

namespace cohort::testing {
namespace {

using Json = nlohmann::json;

constexpr int kRanks = 2;
constexpr int64_t kLayers = 3;

// Runs a replica of two ranks with and without micro-batches; the traces of its ranks.
class TraceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string folder = ::testing::TempDir() + "traceXXXXXX";
    ASSERT_NE(::mkdtemp(folder.data()), nullptr);
    folder_ = folder;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::vector<Json> run(int64_t steps) {
    ReplicaOptions options = tiny_options(kRanks);
    options.trace = {.path = folder_ + "/trace", .process = "replica-\"7\"", .steps = steps};
    TinyModel model = tiny_model(DType::q4_1);
    model.config.layers = kLayers;
    StepLimits limits = options.limits;
    limits.blocks = limits.max_slots * 6;
    auto plans = make_schedule({{some_tokens(20, 1), 3, greedy(), 0}}, limits, {}).plans;
    for (size_t i = 0; i < plans.size(); i++) plans[i].micro_batches = i == 0 ? 2 : 1;
    chain(plans);
    run_plans([=] { return std::make_shared<TinyCheckpoint>(model); }, options, plans);
    std::vector<Json> traces;
    for (int r = 0; r < kRanks; r++) {
      std::ifstream file(concat(folder_, "/trace.", r, ".json"));
      traces.push_back(Json::parse(
          std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>())));
    }
    return traces;
  }

  std::string folder_;
};

struct Span {
  double begin, end;
  Json event;
};

std::vector<Span> spans_of(const Json& trace, int track) {
  std::vector<Span> spans;
  for (const Json& e : trace["traceEvents"])
    if (e["ph"] == "X" && e["tid"] == track)
      spans.push_back({e["ts"], e["ts"].get<double>() + e["dur"].get<double>(), e});
  // A span before those within it.
  std::ranges::stable_sort(spans, [](const Span& a, const Span& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
  });
  return spans;
}

// Rounding to nanoseconds.
constexpr double kSlack = 0.0021;

void expect_nested(const std::vector<Span>& spans) {
  std::vector<Span> open;
  for (const Span& span : spans) {
    while (!open.empty() && open.back().end <= span.begin + kSlack) open.pop_back();
    if (!open.empty()) {
      ASSERT_LE(span.end, open.back().end + kSlack)
          << span.event.dump() << " in " << open.back().event.dump();
    }
    open.push_back(span);
  }
}

TEST_F(TraceTest, SpansNestAndNameStepsLayersOperationsAndCollectives) {
  const std::vector<Json> traces = run(0);
  for (int r = 0; r < kRanks; r++) {
    const Json& trace = traces[size_t(r)];
    EXPECT_GT(std::stoll(trace["otherData"]["start_ns"].get<std::string>()), 0);
    EXPECT_EQ(trace["traceEvents"][0]["name"], "process_name");
    const std::string process = trace["traceEvents"][0]["args"]["name"];
    EXPECT_NE(process.find(concat("replica-\"7\" rank ", r, " on ")), std::string::npos);
    const auto steps_and_work = spans_of(trace, 1), verbs = spans_of(trace, 2);
    expect_nested(steps_and_work);
    expect_nested(verbs);
    std::vector<std::string> steps;
    std::set<std::pair<std::string, int64_t>> computed;
    std::set<int> lanes;
    for (const Span& span : steps_and_work) {
      const std::string name = span.event["name"];
      EXPECT_GT(span.end, span.begin) << name;
      if (name.starts_with("step ")) steps.push_back(name);
      if (!span.event["args"].contains("layer")) continue;
      computed.insert({name, span.event["args"]["layer"]});
      lanes.insert(span.event["args"]["micro_batch"].get<int>());
    }
    EXPECT_EQ(steps, (std::vector<std::string>{"step 1", "step 2", "step 3"}));
    EXPECT_EQ(lanes, (std::set<int>{0, 1}));
    for (int64_t layer = 0; layer < kLayers; layer++)
      for (const char* name : {"attention", "attention output", "feed-forward", "wait"})
        EXPECT_EQ(computed.count({name, layer}), 1u) << name << " of layer " << layer;
    // Per pass: the embedding, two sums a layer; the head in the lane that samples.
    std::map<std::string, int> count;
    for (const Span& span : verbs) {
      const std::string name = span.event["name"], group = span.event["args"]["group"];
      EXPECT_TRUE(name.ends_with(" " + group)) << name;
      count[name]++;
      if (group == "tp") {
        EXPECT_GT(span.event["args"]["bytes"], 0);
      }
    }
    EXPECT_EQ(count["all_reduce tp"], (2 + 1 + 1) * (1 + 2 * int(kLayers)));
    EXPECT_EQ(count["all_gather tp"], 3);
    // The sampler tells the other rank, which reads what it needs.
    EXPECT_EQ(count["send tokens"], r == 0 ? 3 : 0);
    EXPECT_EQ(count["recv tokens"], r == 0 ? 0 : 2);
  }
}

TEST_F(TraceTest, IsWrittenAfterSoManySteps) {
  const std::vector<Json> traces = run(2);
  for (const Json& trace : traces) {
    int steps = 0;
    for (const Span& span : spans_of(trace, 1))
      steps += span.event["name"].get<std::string>().starts_with("step ");
    EXPECT_EQ(steps, 2);
  }
}

TEST(TraceRingTest, KeepsTheNewestEvents) {
  Trace trace("r", 0, 8);
  for (uint64_t step = 1; step <= 100; step++) {
    trace.begin_step(step, 1, 1);
    trace.end_step();
  }
  const Json json = Json::parse(trace.json());
  const auto spans = spans_of(json, 1);
  ASSERT_EQ(spans.size(), 8u);
  EXPECT_EQ(spans[0].event["name"], "step 93");
  EXPECT_EQ(spans[7].event["name"], "step 100");
}

}  // namespace
}  // namespace cohort::testing
