// SPDX-License-Identifier: Apache-2.0
// How tokens reach the experts that they chose, and the outputs come back. The experts of a layer
// are spread whole over all ranks of a stage; a rank exchanges rows with the ranks of its own tp
// index alone (its dp group), because the tp ranks of a group have the same tokens already:
//
//                dp 0                       dp 1
//   tp 0    ┌► experts 0-3  ◄── rows ──►  experts 4-7        column of tp 0: experts 0-7
//        h ─┤
//   tp 1    └► experts 8-11 ◄── rows ──►  experts 12-15      column of tp 1: experts 8-15
//
// A token's row goes once to each rank that has one of its experts; one row for each (token,
// expert) pair comes back. Which of the copies of an expert computes a token changes no bit.
//
// Few rows (decodes): every rank sends as many as it could have to, sizes that all know from the
// plan, so that nobody asks first. Many rows (prefill): counts are exchanged, then exactly the rows
// that are needed.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/function_ref.h"
#include "base/stream.h"
#include "base/task.h"
#include "base/tensor.h"
#include "base/unit_tree.h"
#include "parallel/group.h"

namespace cohort {

// Which dp ranks of a column have which experts of one layer. A plain value, the same on all ranks
// of the column; changed between steps alone.
class ExpertPlacement {
 public:
  // owned[d]: experts of dp rank d; ascending, without gap or overlap. experts: of the whole layer.
  ExpertPlacement(int experts, std::vector<UnitRange> owned);

  // A copy on a further rank. False, and nothing changes: not in this column, or there already.
  bool add(int expert, int dp);
  bool drop(int expert, int dp);  // never the owner's

  int experts() const { return experts_; }
  int ranks() const { return int(owned_.size()); }
  UnitRange column() const { return {owned_.front().begin, owned_.back().end}; }
  int owner(int expert) const;  // dp rank; -1: not in this column
  // Experts of a rank, ascending.
  const std::vector<int>& held(int dp) const { return held_[size_t(dp)]; }
  // Of every expert its number within held, or -1.
  const std::vector<int32_t>& local(int dp) const { return local_[size_t(dp)]; }
  // The dp rank that computes `expert` for a token of group `dp` at `row`: that group itself if it
  // has a copy, else one of the holders, in turn by row. -1: not in this column.
  int place(int expert, int dp, int64_t row) const;

 private:
  bool in_column(int expert) const { return expert >= column().begin && expert < column().end; }
  void number(int dp);  // after a change of held

  int experts_;
  std::vector<UnitRange> owned_;
  std::vector<std::vector<int>> holders_;  // by expert: dp ranks that have it, ascending
  // By dp rank; made when something changes, because every layer of every step reads them.
  std::vector<std::vector<int>> held_;
  std::vector<std::vector<int32_t>> local_;
};

// What dispatch leaves behind for the experts and for combine. Memory is the exchange's.
struct Route {
  Tensor x;        // A [n, hidden]: rows for this rank's experts, sorted by expert; past the last
                   // offset, on a GPU, rows of zeros
  Tensor offsets;  // i32 [held experts + 1]: where each expert's rows begin
  Tensor outputs;  // after combine: A [m, hidden], of this group's own tokens
  Tensor places;   // after combine: i32 [tokens, k] into outputs; -1: another column's expert
};

// Bytes that a rank sends to others in dispatch and combine (parallel/expert_exchange_traffic.h).
struct ExchangeTraffic {
  int64_t sent = 0;     // in the way that was taken
  int64_t fixed = 0;    // all that there could be
  int64_t exact = 0;    // counts, then what is needed
  int64_t minimum = 0;  // rows and outputs alone, without counts, lists of experts or padding
};

// Of one rank, for all layers alike: they run one after another. With two micro-batches there are
// two, as there are two workspaces.
class ExpertExchange {
 public:
  virtual ~ExpertExchange() = default;

  // h A [tokens, hidden] and experts i32 [tokens, k] of this group's tokens; group_rows: tokens of
  // every dp group. Borrows all until combine has finished. meanwhile: called once, when the rows
  // are on their way: what does not need the experts.
  virtual Task dispatch(Route& route, const ExpertPlacement& placement, Tensor h, Tensor experts,
                        std::span<const int64_t> group_rows, FunctionRef<void()> meanwhile) = 0;
  // y A [n, hidden]: the experts' outputs, row by row of route.x; route.outputs may be y itself.
  virtual Task combine(Route& route, Tensor y) = 0;
  // Rows that route.x may have at most.
  virtual int64_t max_rows() const = 0;
  // Sums since it was made; zeros where nothing moves.
  virtual ExchangeTraffic traffic() const { return {}; }
};

struct ExchangeShape {
  int64_t max_rows = 0;  // tokens of one dp group in one (micro-)batch
  int64_t hidden = 0;
  int per_token = 0;
  int most_held = 0;  // experts that one rank may have, copies among them
  // Where no group has more tokens than this, every rank sends all that it could have to.
  int64_t few_rows = 32;
};
// dp: the ranks of this tp index by dp group; of one rank alone nothing moves, and everything
// happens on the stream's device. Several: on the CPU.
std::unique_ptr<ExpertExchange> make_expert_exchange(Stream& stream, Group dp,
                                                     const ExchangeShape& shape);

}  // namespace cohort
