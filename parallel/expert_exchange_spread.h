// SPDX-License-Identifier: Apache-2.0
// The exchange between the dp ranks of a column, on the CPU (parallel/expert_exchange_traffic.h has
// the format). A dispatch and its combine, of one rank:
//
//   h ──► slots for others ──all_to_all──► slots of others ─┐
//   └──────────────── own rows ─────────────────────────────┴─sort─► x ──experts──► y
//   others' outputs ◄──all_to_all── rows in the order of their slots ◄──────────────┤
//   └─ then own outputs ◄───────────────────────────────────────────────────────────┘
//
// Both ways take the same steps; where counts are not exchanged, slots and rows past those that are
// needed travel with whatever they held before, and nobody reads them.
#pragma once
#include "parallel/expert_exchange_rows.h"
#include "parallel/experts.h"

namespace cohort {

class SpreadExchange : public ExpertExchange {
 public:
  SpreadExchange(Stream& stream, Group dp, const ExchangeShape& shape);

  Task dispatch(Route& route, const ExpertPlacement& placement, Tensor h, Tensor experts,
                std::span<const int64_t> group_rows, FunctionRef<void()> meanwhile) override;
  Task combine(Route& route, Tensor y) override;
  int64_t max_rows() const override;
  ExchangeTraffic traffic() const override { return traffic_; }

 private:
  using Counts = std::vector<int64_t>;  // by dp rank
  // A (token, expert) pair that this rank computes.
  struct Pair {
    const float* row;
    int32_t local;  // number of the expert here
    int32_t at;     // row of x and y
  };

  size_t ranks() const { return most_.size(); }
  int64_t most_per_token() const { return std::min(shape_.per_token, shape_.most_held); }
  void begin(const ExpertPlacement& placement, const Tensor& h, const Tensor& experts,
             std::span<const int64_t> group_rows);
  void choose_ranks(const ExpertPlacement& placement, const Tensor& experts);
  void size_messages_out();
  float* slot_of(size_t rank, int64_t token, const float* row);
  void write_slots(const ExpertPlacement& placement, const Tensor& h, const Tensor& experts);
  void end_lists();
  void size_messages_in();
  void read_list(const float* slot, size_t from);
  void read_slots();
  void sort_pairs(Route& route);
  void account(const ExpertPlacement& placement);
  void write_outputs(const float* y);
  void keep_outputs(const float* y);

  Stream* stream_;
  Group dp_;
  ExchangeShape shape_;
  const size_t own_;

  // Of one layer: what a dispatch leaves to its combine.
  bool dispatched_ = false;
  bool all_ = false;                 // all that there could be is sent
  bool quiet_ = false;               // no group has a token
  int64_t tokens_ = 0, held_ = 0;    // of this group; experts of this rank
  Counts group_rows_;                // tokens of each group
  Counts most_;                      // pairs that a token can have at each rank
  Counts needed_, pairs_;            // tokens of this group that need a rank, and their pairs
  Counts pairs_for_;                 // pairs of each group that this rank computes
  Counts slots_out_, slots_in_;      // of the messages to and from each rank
  Counts outputs_out_, outputs_in_;  // rows of the messages back, to and from each rank
  std::vector<Pair> here_;  // pairs that this rank computes: own, then by group, slot by slot
  std::vector<int32_t> asked_, told_;  // counts of slots to and from each rank

  // Used within one step.
  std::vector<int32_t> chosen_;       // [tokens * k] the dp rank of each pair, or -1
  std::vector<int32_t> next_;         // by local expert: the next row of x
  Counts first_slot_, first_output_;  // floats, rows: where a rank's messages begin
  Counts begun_, listed_, placed_;    // slots, experts in the last of them, outputs so far
  Counts last_;                       // the last token that needs a rank
  Counts to_bytes_, from_bytes_;      // of the verb that is under way
  RowCopies copies_;

  // f32: out_, in_ slots; x_, back_, outputs_ [rows, hidden]. i32: offsets_ [most_held + 1],
  // places_ [max_rows * k].
  Buffer out_, in_, x_, back_, outputs_, offsets_, places_;
  ExchangeTraffic traffic_;
};

}  // namespace cohort
