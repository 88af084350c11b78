// SPDX-License-Identifier: Apache-2.0
// Which members of a group share a host, and what a host's pieces of a reduction are.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/unit_tree.h"
#include "comm/tree_sum.h"

namespace cohort {

// Hosts in the order of their members. A plain value.
class HostMap {
 public:
  // hosts: by group rank, equal for ranks that share memory. Nothing where the members of a host
  // are not neighbours: then their units are not either.
  static std::optional<HostMap> make(const std::vector<std::string>& hosts);

  // Whether some members share a host and others do not.
  bool mixed() const { return hosts() > 1 && hosts() < ranks(); }
  int hosts() const { return int(first_.size()) - 1; }
  int ranks() const { return first_.back(); }
  int first(int host) const { return first_[size_t(host)]; }  // group rank
  int size(int host) const { return first_[size_t(host + 1)] - first_[size_t(host)]; }
  int host_of(int rank) const;
  // Pairs of hosts exchange through that many of their members at once: the i-th of each host.
  int rails() const;
  // Group ranks that carry rail i, by host.
  std::vector<int> rail(int i) const;
  std::vector<int> members(int host) const;

 private:
  std::vector<int> first_;  // group rank of each host's first member, and the number of ranks
};

// How the members of one host add their pieces of a TreePlan up to the host's pieces: the maximal
// subtrees of the units that they own together. The bits are those of the whole tree.
class HostReduction {
 public:
  HostReduction(const TreePlan& plan, const HostMap& hosts, int host);

  // The plan among hosts, each as one rank.
  const TreePlan& between() const { return between_; }
  // Whether it was made of this plan.
  bool is_of(const TreePlan& plan) const;
  // pieces: those of the host's members, in the order of their units; out: those of the host, back
  // to back, `count` floats each.
  void run(std::span<const float* const> pieces, float* out, int64_t count);

 private:
  std::vector<std::vector<UnitRange>> pieces_;  // of the plan, by rank
  int units_;
  TreePlan between_;
  // One plan per piece of the host: a subtree is the tree over as many units, and each piece of a
  // member is one of its nodes.
  std::vector<TreePlan> subtrees_;
  TreeSum tree_sum_;
};

}  // namespace cohort
