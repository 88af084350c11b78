// SPDX-License-Identifier: Apache-2.0
// What the scheduler is asked, what it answers, and what it knows about a sequence.
#pragma once
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "kernels/sampling.h"
#include "worker/leader/prefix_cache.h"

namespace cohort {

// One attempt at one sequence. Attempts of a request are different sequences to the scheduler.
struct SequenceId {
  uint64_t request = 0;
  uint32_t attempt = 0;
  friend auto operator<=>(const SequenceId&, const SequenceId&) = default;
};

struct SequenceRequest {
  SequenceId id;
  std::vector<int32_t> prompt;         // at least one token
  std::vector<int32_t> output_prefix;  // what earlier attempts produced
  SamplingParams sampling;
  int32_t max_tokens = 0;  // of output, the prefix included
  std::string salt;        // sequences share cached blocks only under the same salt
};

enum class FinishReason { stop, length, cancelled, error };

// One token of a sequence, or its end, or both.
struct SequenceEvent {
  SequenceId id;
  int32_t index = 0;  // of `token` in the output, from 0; without a token: of the next one
  std::optional<SampledToken> token = {};
  std::optional<FinishReason> finish = {};
  std::string error = {};  // with FinishReason::error
  // Why it was not even begun; kOk otherwise. kInvalidArgument: no replica could serve it.
  Code refused = Code::kOk;
  int32_t cached_tokens = 0;  // prompt tokens that were not computed, at the first admission
};

// Positions count prompt and output alike. `planned` runs ahead of `done` by the steps in flight.
struct Sequence {
  SequenceRequest request;
  uint64_t arrival = 0;         // order of admission to the queue; survives preemption
  std::vector<int32_t> tokens;  // prompt and known output
  int32_t last_output = 0;      // tokens.size() at which it ends for sure
  int32_t first_output = 0;     // == request.prompt.size()
  int32_t unanswered = 0;       // sampled by steps in flight: exist, but unknown here
  std::optional<int32_t> slot;  // while it runs
  uint64_t incarnation = 0;     // rises with every start: older steps' blocks are not its own
  int32_t planned = 0;          // positions computed by submitted steps
  int32_t done = 0;             // positions computed by finished steps
  uint64_t last_step = 0;       // the last one that has it
  std::vector<int32_t> table;   // blocks, in order of position
  std::vector<BlockKey> keys;   // of its leading full blocks, as far as they are known
  int32_t remembered = 0;       // leading blocks of `table` that the cache was told of
  std::optional<int32_t> cached_tokens;  // at its first start

  int32_t length() const { return static_cast<int32_t>(tokens.size()) + unanswered; }
  int32_t remaining() const { return length() - planned; }  // positions that can be computed
  // All its tokens are made or under way.
  bool exhausted() const { return length() >= last_output; }
  int32_t output_size() const { return static_cast<int32_t>(tokens.size()) - first_output; }
};

// Blocks that hold so many positions.
int32_t blocks_for(int32_t positions);

}  // namespace cohort
