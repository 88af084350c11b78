// SPDX-License-Identifier: Apache-2.0
#include "parallel/mesh.h"

#include "base/check.h"

namespace cohort {

std::string to_string(const Layout& layout) {
  std::string shares;
  for (int share : layout.shares) shares += concat(shares.empty() ? "" : ":", share);
  if (!shares.empty()) shares = " (shares " + shares + ")";
  return concat("tp ", layout.tp, shares, " x pp ", layout.pp);
}

std::vector<int> Mesh::stage(int pp) const {
  std::vector<int> ranks;
  for (int tp = 0; tp < tp_; tp++) ranks.push_back(rank({pp, tp}));
  return ranks;
}

std::vector<int> Mesh::column(int tp) const {
  std::vector<int> ranks;
  for (int pp = 0; pp < pp_; pp++) ranks.push_back(rank({pp, tp}));
  return ranks;
}

}  // namespace cohort
