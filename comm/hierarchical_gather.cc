// SPDX-License-Identifier: Apache-2.0
// all_gather of a HierarchicalCommunicator, and how one is made.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "comm/hierarchical.h"

namespace cohort {

int64_t HierarchicalCommunicator::host_bytes(std::span<const int64_t> bytes, int host) const {
  const auto of_host = bytes.subspan(size_t(hosts_.first(host)), size_t(hosts_.size(host)));
  return std::accumulate(of_host.begin(), of_host.end(), int64_t(0));
}

Status HierarchicalCommunicator::all_gather(const void* in, void* out,
                                            std::span<const int64_t> bytes) {
  COHORT_CHECK_EQ(int(bytes.size()), size());
  const int64_t total = std::accumulate(bytes.begin(), bytes.end(), int64_t(0));
  return run(Verb::all_gather, total, hash_of(bytes), [&]() -> Status {
    auto* const to = static_cast<std::byte*>(out);
    if (!parts_.local) {
      sizes_.clear();
      for (int h = 0; h < hosts_.hosts(); h++) sizes_.push_back(host_bytes(bytes, h));
      return rail().all_gather(in, out, sizes_);
    }
    int64_t before = 0;
    for (int h = 0; h < host_; h++) before += host_bytes(bytes, h);
    COHORT_RETURN_IF_ERROR(
        local(Stage::gather)
            .all_gather(in, to + before,
                        bytes.subspan(size_t(hosts_.first(host_)), size_t(hosts_.size(host_)))));
    COHORT_RETURN_IF_ERROR(gather_by_rail(bytes, to + before));
    return spread_gathered(bytes, to);
  });
}

// by_rail_: the slices that this rank's rail has brought from the other hosts, one after the other.
// own: the bytes of this host.
Status HierarchicalCommunicator::gather_by_rail(std::span<const int64_t> bytes,
                                                const std::byte* own) {
  by_rail_.clear();
  if (!parts_.rail) return {};
  sizes_.clear();
  int64_t total = 0, own_at = 0;
  for (int h = 0; h < hosts_.hosts(); h++) {
    const Slices cut = slices(host_bytes(bytes, h), 1);
    sizes_.push_back(carries(cut) ? cut.size(member_) : 0);
    if (h == host_) {
      own_at = total;
      own += cut.begin(member_);
    }
    total += sizes_.back();
  }
  const int64_t own_bytes = sizes_[size_t(host_)];
  by_rail_.resize(size_t(total));
  COHORT_RETURN_IF_ERROR(rail().all_gather(own, by_rail_.data(), sizes_));
  // The members of this host have these already.
  by_rail_.erase(by_rail_.begin() + own_at, by_rail_.begin() + own_at + own_bytes);
  return {};
}

Status HierarchicalCommunicator::spread_gathered(std::span<const int64_t> bytes, std::byte* out) {
  sizes_.assign(size_t(hosts_.size(host_)), 0);
  for (int h = 0; h < hosts_.hosts(); h++) {
    if (h == host_) continue;
    const Slices cut = slices(host_bytes(bytes, h), 1);
    for (int i = 0; i < cut.rails; i++) sizes_[size_t(i)] += cut.size(i);
  }
  by_members_.resize(size_t(std::accumulate(sizes_.begin(), sizes_.end(), int64_t(0))));
  COHORT_RETURN_IF_ERROR(
      local(Stage::spread).all_gather(by_rail_.data(), by_members_.data(), sizes_));
  const std::byte* from = by_members_.data();
  for (int i = 0; i < hosts_.rails(); i++) {
    std::byte* to = out;
    for (int h = 0; h < hosts_.hosts(); to += host_bytes(bytes, h), h++) {
      const Slices cut = slices(host_bytes(bytes, h), 1);
      if (h == host_ || i >= cut.rails || cut.size(i) == 0) continue;
      std::memcpy(to + cut.begin(i), from, size_t(cut.size(i)));
      from += cut.size(i);
    }
  }
  return {};
}

Result<std::unique_ptr<Communicator>> make_hierarchical_communicator(GroupInfo info,
                                                                     const HostMap& hosts,
                                                                     MemberGroup local,
                                                                     MemberGroup between) {
  HierarchicalCommunicator::Parts parts;
  const int host = hosts.host_of(info.rank), member = info.rank - hosts.first(host);
  if (hosts.size(host) > 1) {
    COHORT_ASSIGN_OR_RETURN(parts.local, local(hosts.members(host)));
  }
  std::vector<int> all(size_t(info.size()));
  std::iota(all.begin(), all.end(), 0);
  COHORT_ASSIGN_OR_RETURN(parts.direct, between(all));
  if (member < hosts.rails()) {
    COHORT_ASSIGN_OR_RETURN(parts.rail, between(hosts.rail(member)));
  }
  return std::unique_ptr<Communicator>(
      std::make_unique<HierarchicalCommunicator>(std::move(info), hosts, std::move(parts)));
}

}  // namespace cohort
