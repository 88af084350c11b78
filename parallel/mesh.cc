// SPDX-License-Identifier: Apache-2.0
#include "parallel/mesh.h"

#include "base/check.h"

namespace cohort {
namespace {

std::string shares_text(const std::vector<int>& shares, const char* what) {
  std::string text;
  for (int share : shares) text += concat(text.empty() ? "" : ":", share);
  return text.empty() ? "" : concat(" (", what, " ", text, ")");
}

}  // namespace

std::string to_string(const Layout& layout) {
  std::string text =
      concat("tp ", layout.tp, shares_text(layout.shares, "shares"), " x pp ", layout.pp);
  if (layout.dp > 1) text += concat(" x dp ", layout.dp);
  return text + shares_text(layout.expert_shares, "expert shares");
}

std::vector<int> Mesh::tp_group(Coordinates at) const {
  std::vector<int> ranks;
  for (at.tp = 0; at.tp < tp_; at.tp++) ranks.push_back(rank(at));
  return ranks;
}

std::vector<int> Mesh::pp_group(Coordinates at) const {
  std::vector<int> ranks;
  for (at.pp = 0; at.pp < pp_; at.pp++) ranks.push_back(rank(at));
  return ranks;
}

std::vector<int> Mesh::dp_group(Coordinates at) const {
  std::vector<int> ranks;
  for (at.dp = 0; at.dp < dp_; at.dp++) ranks.push_back(rank(at));
  return ranks;
}

}  // namespace cohort
