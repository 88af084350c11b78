// SPDX-License-Identifier: Apache-2.0
// Where the ranks of a replica stand: rank = (pp * dp_size + dp) * tp_size + tp, so that the ranks
// of one stage, which talk most, are neighbours and share a host first.
//
//              dp 0              dp 1
//              tp 0     tp 1     tp 0     tp 1
//   stage 0   rank 0   rank 1   rank 2   rank 3     embedding and the first layers
//   stage 1   rank 4   rank 5   rank 6   rank 7     the last layers and the head
//
// dp: data-parallel attention. Each dp group has sequences of its own and a copy of everything but
// the experts; the experts of a layer are spread over all ranks of the stage.
#pragma once
#include <string>
#include <vector>

namespace cohort {

// How a replica is cut. A plain value.
struct Layout {
  int tp = 1;                          // ranks that share each layer
  int pp = 1;                          // stages of consecutive layers
  int dp = 1;                          // groups of tp ranks per stage, each with its own sequences
  std::vector<int> shares = {};        // relative part of each tp rank; empty: equal
  std::vector<int> stage_layers = {};  // layers of each stage; empty: as even as possible
  // Relative number of experts of each rank of a stage (dp * tp_size + tp); empty: equal. Zero is
  // allowed: a rank may have none.
  std::vector<int> expert_shares = {};
  int ep() const { return tp * dp; }  // ranks over which the experts of a layer are spread
  int ranks() const { return tp * pp * dp; }
  friend bool operator==(const Layout&, const Layout&) = default;
};
// "tp 2 (shares 2:1) x pp 3", "tp 1 x pp 1 x dp 4".
std::string to_string(const Layout& layout);

struct Coordinates {
  int pp = 0, dp = 0, tp = 0;
  friend bool operator==(const Coordinates&, const Coordinates&) = default;
};

class Mesh {
 public:
  Mesh(int tp, int pp, int dp = 1) : tp_(tp), pp_(pp), dp_(dp) {}

  int tp() const { return tp_; }
  int pp() const { return pp_; }
  int dp() const { return dp_; }
  int ranks() const { return tp_ * pp_ * dp_; }
  int rank(Coordinates at) const { return (at.pp * dp_ + at.dp) * tp_ + at.tp; }
  Coordinates coordinates(int rank) const {
    return {rank / (tp_ * dp_), rank / tp_ % dp_, rank % tp_};
  }

  // World ranks that differ in one coordinate alone, in its order.
  std::vector<int> tp_group(Coordinates at) const;
  std::vector<int> pp_group(Coordinates at) const;
  std::vector<int> dp_group(Coordinates at) const;
  // The rank that draws the tokens of a dp group: the first of its last stage.
  int sampler(int dp) const { return rank({pp_ - 1, dp, 0}); }
  bool is_sampler(int rank) const { return rank == sampler(coordinates(rank).dp); }

 private:
  int tp_, pp_, dp_;
};

}  // namespace cohort
