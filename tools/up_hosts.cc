// SPDX-License-Identifier: Apache-2.0
#include "tools/up_hosts.h"

#include <algorithm>
#include <map>

#include "base/check.h"
#include "tools/host_address.h"
#include "tools/up_options.h"

namespace cohort {
namespace {

struct KnownHost {
  std::string address;
  bool here = false;
};
using KnownHosts = std::map<std::string, KnownHost>;  // by the name that was given

Result<KnownHosts> look_up(const std::vector<HostList>& lists) {
  KnownHosts known;
  for (const HostList& list : lists) {
    std::map<std::string, std::string> machines;
    for (const HostRanks& host : list) {
      COHORT_ASSIGN_OR_RETURN(const std::string address, resolve_host(host.name));
      const bool here = is_this_machine(host.name, address);
      known[host.name] = {address, here};
      const auto [other, added] = machines.emplace(here ? "here" : address, host.name);
      if (!added)
        return invalid_argument("--hosts: " + other->second + " and " + host.name +
                                " are the same machine (" + (here ? "this one" : address) + ")");
    }
  }
  return known;
}

// This machine's address for the others, which is also that of rank 0 if it runs here. A name such
// as this machine's own is not asked: it often resolves to a loopback address.
Result<Interface> own_interface(const UpOptions& options, const std::string& other) {
  COHORT_ASSIGN_OR_RETURN(Interface towards, options.network.empty()
                                                 ? interface_towards(other)
                                                 : find_interface(options.network));
  if (!towards.loopback) return towards;
  return failed_precondition("--hosts: the way to " + other + " leads through " + towards.name +
                             " (" + towards.address +
                             "), which reaches no other host; choose an interface with --network");
}

// What MPI talks over: what was asked for, else this machine's network, if all hosts are in it.
std::string ranks_network(const UpOptions& options, const Interface& own,
                          const std::vector<std::string>& addresses) {
  if (!options.network.empty()) return options.network;
  const std::string network = own.network();
  const bool all = std::ranges::all_of(
      addresses, [&](const std::string& a) { return network_contains(network, a); });
  return all ? network : "";
}

Result<ReplicaHosts> plan_replica(const UpOptions& options, const HostList& list,
                                  const KnownHosts& known, HostPlan& plan) {
  ReplicaHosts replica;
  replica.hosts = list;
  COHORT_RETURN_IF_ERROR(spread_ranks(replica.hosts, options.tp, options.dp_groups(), options.pp));
  std::vector<std::string> addresses;  // of the others
  for (const HostRanks& host : replica.hosts) {
    const KnownHost& found = known.at(host.name);
    if (found.here) continue;
    replica.others.push_back(host.name);
    addresses.push_back(found.address);
  }
  if (replica.others.empty()) return replica;
  COHORT_ASSIGN_OR_RETURN(const Interface own, own_interface(options, addresses[0]));
  plan.listen = own.address;
  replica.network = ranks_network(options, own, addresses);
  if (replica.hosts.size() == 1) return replica;
  const KnownHost& first = known.at(replica.hosts[0].name);
  replica.rank_host = first.here ? own.address : first.address;
  if (options.rank_host.empty()) return replica;
  COHORT_ASSIGN_OR_RETURN(const std::string address, resolve_host(options.rank_host));
  if (address.starts_with("127."))
    return failed_precondition("--rank-host " + options.rank_host + " resolves to " + address +
                               ", which other hosts cannot reach; give --rank-host an address of " +
                               replica.hosts[0].name + " that they can");
  replica.rank_host = options.rank_host;
  return replica;
}

// Replicas take the GPUs of their hosts one after the other. mpirun gives all its ranks the same
// environment, so the same GPUs must be meant on all hosts.
Status choose_gpus(const UpOptions& options, HostPlan& plan) {
  std::map<std::string, int> taken;
  for (ReplicaHosts& replica : plan.replicas) {
    replica.first_gpu = taken[replica.hosts[0].name];
    for (const HostRanks& host : replica.hosts) {
      replica.gpus = std::max(replica.gpus, host.ranks);
      if (options.device == "cuda" && options.replicas > 1 &&
          (taken[host.name] != replica.first_gpu || host.ranks != replica.hosts[0].ranks))
        return invalid_argument(concat("--hosts ", options.hosts,
                                       ": replicas with GPUs must find as many free and take as "
                                       "many on each of their hosts; ",
                                       host.name, " differs from ", replica.hosts[0].name));
      taken[host.name] += host.ranks;
    }
  }
  for (const auto& [name, ranks] : taken) plan.most_ranks = std::max(plan.most_ranks, ranks);
  return {};
}

}  // namespace

Result<HostPlan> plan_hosts(const UpOptions& options) {
  HostPlan plan;
  if (options.hosts.empty()) {
    plan.most_ranks = options.ranks() * options.replicas;
    for (int i = 0; i < options.replicas; i++) {
      plan.replicas.emplace_back();
      plan.replicas[size_t(i)].first_gpu = i * options.ranks();
      plan.replicas[size_t(i)].gpus = options.ranks();
    }
  } else {
    COHORT_ASSIGN_OR_RETURN(const auto lists, parse_host_lists(options.hosts));
    if (int(lists.size()) > options.replicas)
      return invalid_argument(concat("--hosts has lists for ", lists.size(),
                                     " replicas, but --replicas is ", options.replicas));
    COHORT_ASSIGN_OR_RETURN(const KnownHosts known, look_up(lists));
    for (int i = 0; i < options.replicas; i++) {
      COHORT_ASSIGN_OR_RETURN(ReplicaHosts replica,
                              plan_replica(options, lists[size_t(i) % lists.size()], known, plan));
      plan.replicas.push_back(std::move(replica));
    }
    COHORT_RETURN_IF_ERROR(choose_gpus(options, plan));
  }
  if (!options.listen.empty()) plan.listen = options.listen;
  return plan;
}

}  // namespace cohort
