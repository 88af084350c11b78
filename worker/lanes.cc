// SPDX-License-Identifier: Apache-2.0
#include "worker/lanes.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace cohort {
namespace {

// Runs the lane until it waits for a verb or has ended.
void resume(Lane& lane, int index, VerbLine& line, Where& where) {
  where.restore(lane.where, index);
  if (lane.waiting)
    std::exchange(lane.waiting, nullptr).resume();
  else
    lane.task->start();
  lane.where = where.word();
  if (lane.task->done())
    lane.task->result();
  else
    lane.waiting = line.take_suspended();
  COHORT_CHECK(lane.task->done() || lane.waiting);
}

// What a lane reads of the cache, the lane before it has written.
void check_order(const Lane& ahead, const Lane& behind) {
  COHORT_CHECK_MSG(ahead.task->done() || Where::order(behind.where) <= Where::order(ahead.where),
                   "the second micro-batch has passed the first");
}

}  // namespace

RowRange lane_rows(int64_t rows, int lanes, int lane) {
  const auto begin = [&](int64_t i) { return (rows * i + lanes - 1) / lanes; };
  return {begin(lane), begin(lane + 1)};
}

void cut_entries(const StepPlan& plan, RowRange rows, std::vector<LaneEntry>& out) {
  out.clear();
  int64_t row = 0;
  for (const StepEntry& entry : plan.entries) {
    const int64_t begin = std::max(row, rows.begin), end = std::min(row + entry.length, rows.end);
    if (begin < end)
      out.push_back({.entry = &entry,
                     .start = int32_t(entry.start + begin - row),
                     .length = int32_t(end - begin),
                     .sample = entry.sample && end == row + entry.length});
    row += entry.length;
  }
}

Lane::Lane(int64_t max_rows, int64_t hidden, std::unique_ptr<StageInput> in,
           std::unique_ptr<StageOutput> out)
    : x(size_t(max_rows) * (size_t(hidden) * sizeof(float) + sizeof(int32_t))),
      input(std::move(in)),
      output(std::move(out)) {}

void run_in_turns(std::span<const std::unique_ptr<Lane>> lanes, VerbLine& line, Where& where) {
  const auto running = [](const std::unique_ptr<Lane>& lane) { return !lane->task->done(); };
  while (std::ranges::any_of(lanes, running))
    for (size_t i = 0; i < lanes.size(); i++) {
      if (!running(lanes[i])) continue;
      resume(*lanes[i], int(i), line, where);
      if (i > 0) check_order(*lanes[i - 1], *lanes[i]);
    }
  where.restore(where.word(), 0);
}

}  // namespace cohort
