// SPDX-License-Identifier: Apache-2.0
// A step on the CPU goes through the layers in one lane, or in two that take turns: each has half
// of the rows and computes while the other's collectives are under way.
//
//   rows of the plan   │ entry 0 │    entry 1    │ entry 2 │
//   lane A             │ entry 0 │ entry │
//   lane B                               │ 1     │ entry 2 │     the cut may be within an entry
//
// Whoever is resumed next is the other one, whatever has finished meanwhile: all ranks run their
// collectives in the same order. Lane A is always ahead of lane B, so that B's attention finds in
// the cache what A's rows of the same sequence put there.
#pragma once
#include <coroutine>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "base/task.h"
#include "kernels/attention_batch.h"
#include "parallel/verb_line.h"
#include "worker/stage_ends.h"
#include "worker/step.h"
#include "worker/step_plan.h"

namespace cohort {

// Of `rows` rows, those of lane `lane` of `lanes`: as even as can be, the first ones larger. The
// same rule on every rank, for the rows of every dp group.
struct RowRange {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
};
RowRange lane_rows(int64_t rows, int lanes, int lane);

// What lies in `rows` of the plan's rows, entry by entry.
void cut_entries(const StepPlan& plan, RowRange rows, std::vector<LaneEntry>& out);

// One of the ways through the layers: memory for the step's rows, and the step itself. Kept from
// step to step.
struct Lane {
  Lane(int64_t max_rows, int64_t hidden, std::unique_ptr<StageInput> input,
       std::unique_ptr<StageOutput> output);

  Buffer x;  // the residual stream: f32 [tokens, hidden], then i32 [tokens] error codes
  std::unique_ptr<StageInput> input;
  std::unique_ptr<StageOutput> output;

  // Of the step that runs.
  std::vector<LaneEntry> entries;   // they point into the plan
  std::vector<int64_t> group_rows;  // of every dp group, in this lane
  std::optional<AttentionBatch> batch;
  std::optional<Step> step;
  std::optional<Task> task;
  std::coroutine_handle<> waiting;  // the innermost coroutine
  uint64_t where = 0;               // Where::word() when it was suspended
};

// Runs the lanes' tasks to their ends, in turns. Throws what a task throws; then the others stand
// where they are, and verbs of theirs may be under way: lanes must outlive the line.
void run_in_turns(std::span<const std::unique_ptr<Lane>> lanes, VerbLine& line, Where& where);

}  // namespace cohort
