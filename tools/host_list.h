// SPDX-License-Identifier: Apache-2.0
// Which hosts run a replica's ranks, and how many each.
#pragma once
#include <string>
#include <vector>

#include "base/status.h"

namespace cohort {

struct HostRanks {
  std::string name;  // or IPv4 address
  int ranks = 0;     // 0: not said
};
using HostList = std::vector<HostRanks>;  // in the order of the ranks

// "a,b" or "a:2,b:1"; lists of several replicas with slashes between them. A list says how many
// ranks each of its hosts runs, or for none of them.
Result<std::vector<HostList>> parse_host_lists(const std::string& text);

// Where nothing was said: as even as whole stages allow (the ranks of one stage talk most), then
// whole tensor-parallel groups, then single ranks; earlier hosts get what is left over. Ranks are
// counted tensor-parallel index first, then dp, then stage. Fails where the numbers do not add up,
// or hosts would get none.
Status spread_ranks(HostList& hosts, int tp, int dp, int pp);

// "a:2,b:1", for mpirun.
std::string to_string(const HostList& hosts);

}  // namespace cohort
