// SPDX-License-Identifier: Apache-2.0
// A simulated replica. It checks every rule of plans when they are submitted, keeps "KV" as the
// tokens that were written to each block, and samples a hash of all the tokens it finds there, so
// that a wrong, stale or overwritten block changes the output or is reported. Each dp group has a
// pool of its own.
#pragma once
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "worker/step_plan.h"

namespace cohort {

inline constexpr int32_t kFakeVocabulary = 1000;
inline constexpr int32_t kFakeEnd = 7;
// A prompt that starts with it fails at its third token.
inline constexpr int32_t kFakePoison = 999;

// What the simulated model answers after these tokens; written without blocks, steps and slots.
int32_t fake_next_token(const std::vector<int32_t>& tokens, int32_t prompt_tokens,
                        const SamplingParams& sampling);

class FakeExecutor : public StepExecutor {
 public:
  explicit FakeExecutor(const StepLimits& limits);

  const StepLimits& limits() const override { return limits_; }
  Status submit(const StepPlan& plan) override;
  Result<StepResult> next_result() override;
  bool has_result() const override { return !unanswered_.empty(); }

  int32_t unanswered() const { return int32_t(unanswered_.size()); }
  const std::vector<StepPlan>& plans() const { return plans_; }
  int64_t rows() const { return rows_; }
  // All that the ranks hold, for comparison after a replay.
  std::string state() const;

 private:
  struct Slot {  // as of the last submitted plan
    int32_t position = 0;
    int32_t length = 0;  // tokens known or sampled by submitted steps
    std::vector<int32_t> table;
    friend bool operator==(const Slot&, const Slot&) = default;
  };
  struct Device {  // as of the last executed plan
    NewSequence sequence;
    std::vector<int32_t> table;
  };
  struct Cell {
    int32_t position = -1, token = -1;
  };
  struct Pending {
    StepPlan plan;
    std::map<int32_t, std::vector<int32_t>> tables;  // of the slots that the plan uses
  };
  int32_t group(int32_t slot) const { return slot / limits_.max_slots; }
  Status check(const StepPlan& plan);
  Status check_entry(const StepPlan& plan, const StepEntry& entry);
  Status check_written(const StepEntry& entry, const Slot& slot) const;
  Status execute(const StepEntry& entry, StepResult& result);

  const StepLimits limits_;
  std::map<int32_t, Slot> slots_;
  std::deque<Pending> unanswered_;
  std::map<int32_t, Device> device_;
  std::vector<std::vector<Cell>> cells_;  // block by block, group by group
  std::vector<StepPlan> plans_;
  uint64_t step_ = 0, checksum_ = 0;
  int64_t rows_ = 0;
};

}  // namespace cohort
