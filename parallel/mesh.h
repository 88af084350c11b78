// SPDX-License-Identifier: Apache-2.0
// Where the ranks of a replica stand: rank = pp * tp_size + tp, so that the ranks of one stage,
// which talk most, are neighbours and share a host first.
//
//              tp 0     tp 1     tp 2
//   stage 0   rank 0   rank 1   rank 2     embedding and the first layers
//   stage 1   rank 3   rank 4   rank 5     the last layers and the head
#pragma once
#include <string>
#include <vector>

namespace cohort {

// How a replica is cut. A plain value.
struct Layout {
  int tp = 1;                     // ranks that share each layer
  int pp = 1;                     // stages of consecutive layers
  std::vector<int> shares;        // relative part of each tp rank; empty: equal
  std::vector<int> stage_layers;  // layers of each stage; empty: as even as possible
  int ranks() const { return tp * pp; }
  friend bool operator==(const Layout&, const Layout&) = default;
};
// "tp 2 (shares 2:1) x pp 3"
std::string to_string(const Layout& layout);

struct Coordinates {
  int pp = 0, tp = 0;
  friend bool operator==(const Coordinates&, const Coordinates&) = default;
};

class Mesh {
 public:
  Mesh(int tp, int pp) : tp_(tp), pp_(pp) {}

  int tp() const { return tp_; }
  int pp() const { return pp_; }
  int ranks() const { return tp_ * pp_; }
  int rank(Coordinates at) const { return at.pp * tp_ + at.tp; }
  Coordinates coordinates(int rank) const { return {rank / tp_, rank % tp_}; }

  std::vector<int> stage(int pp) const;   // world ranks of a stage, by tp
  std::vector<int> column(int tp) const;  // world ranks of a tp index, by stage
  // The rank that draws tokens: the first of the last stage.
  int sampler() const { return rank({pp_ - 1, 0}); }

 private:
  int tp_, pp_;
};

}  // namespace cohort
