// SPDX-License-Identifier: Apache-2.0
#include "tools/host_list.h"

#include <algorithm>
#include <charconv>

#include "base/check.h"

namespace cohort {
namespace {

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts(1);
  for (char c : text)
    if (c == separator)
      parts.emplace_back();
    else
      parts.back() += c;
  return parts;
}

Status malformed(const std::string& text) {
  return invalid_argument("--hosts must be names or IPv4 addresses, as in a,b or a:2,b:1 (and " +
                          std::string("slashes between replicas), not '") + text + "'");
}

Result<HostRanks> parse_host(const std::string& text, const std::string& whole) {
  const auto parts = split(text, ':');
  HostRanks host{.name = parts[0], .ranks = 0};
  // What a shell or mpirun would take for something else is no name of a host.
  const bool named = !host.name.empty() && host.name[0] != '-' &&
                     std::ranges::all_of(host.name, [](unsigned char c) {
                       return std::isalnum(c) || c == '-' || c == '.' || c == '_';
                     });
  if (!named || parts.size() > 2) return malformed(whole);
  if (parts.size() == 1) return host;
  const char* end = parts[1].data() + parts[1].size();
  const auto [stop, error] = std::from_chars(parts[1].data(), end, host.ranks);
  if (error != std::errc{} || stop != end || host.ranks < 1 || host.ranks > 1024)
    return malformed(whole);
  return host;
}

Result<HostList> parse_list(const std::string& text, const std::string& whole) {
  HostList hosts;
  for (const std::string& part : split(text, ',')) {
    COHORT_ASSIGN_OR_RETURN(HostRanks host, parse_host(part, whole));
    for (const HostRanks& other : hosts)
      if (other.name == host.name)
        return invalid_argument("--hosts names " + host.name + " twice for one replica; " +
                                "write its ranks together, as in " + host.name + ":2");
    if (!hosts.empty() && (hosts[0].ranks > 0) != (host.ranks > 0))
      return invalid_argument("--hosts gives the ranks of some hosts only: '" + whole + "'");
    hosts.push_back(std::move(host));
  }
  return hosts;
}

}  // namespace

Result<std::vector<HostList>> parse_host_lists(const std::string& text) {
  std::vector<HostList> lists;
  for (const std::string& part : split(text, '/')) {
    COHORT_ASSIGN_OR_RETURN(HostList list, parse_list(part, text));
    lists.push_back(std::move(list));
  }
  return lists;
}

Status spread_ranks(HostList& hosts, int tp, int dp, int pp) {
  const int ranks = tp * dp * pp, count = int(hosts.size());
  if (hosts[0].ranks > 0) {
    int said = 0;
    for (const HostRanks& host : hosts) said += host.ranks;
    if (said == ranks) return {};
    return invalid_argument(concat("--hosts has room for ", said, " ranks (", to_string(hosts),
                                   "), but a replica has ", ranks));
  }
  if (count > ranks)
    return invalid_argument(concat("--hosts names ", count, " hosts for a replica of ", ranks,
                                   ranks == 1 ? " rank" : " ranks",
                                   "; give it fewer hosts or more ranks"));
  const int unit = count <= pp ? tp * dp : count <= pp * dp ? tp : 1;
  const int units = ranks / unit;
  for (int i = 0; i < count; i++)
    hosts[size_t(i)].ranks = unit * (units / count + (i < units % count ? 1 : 0));
  return {};
}

std::string to_string(const HostList& hosts) {
  std::string text;
  for (const HostRanks& host : hosts)
    text += concat(text.empty() ? "" : ",", host.name, ":", host.ranks);
  return text;
}

}  // namespace cohort
