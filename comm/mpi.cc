// SPDX-License-Identifier: Apache-2.0
// The world of ranks that mpirun has started.
#include <unistd.h>

#include <array>
#include <charconv>
#include <optional>

#include "base/log.h"
#include "comm/communicator.h"
#include "comm/hierarchical.h"
#include "comm/mpi_communicator.h"
#include "comm/mpi_transport.h"
#include "comm/shm.h"

namespace cohort {
namespace {

constexpr Duration kSetupTimeout = std::chrono::seconds(60);

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "unknown";
  return name.data();
}

Result<std::unique_ptr<Communicator>> as_communicator(
    Result<std::unique_ptr<RoundCommunicator>> made) {
  if (!made.ok()) return made.status();
  return std::unique_ptr<Communicator>(std::move(*made));
}

class MpiWorld : public World {
 public:
  MpiWorld(std::shared_ptr<MpiTransport> transport, CommunicatorKind kind, const std::string& host)
      : transport_(std::move(transport)),
        kind_(kind),
        host_(host.empty() ? host_name() : host),
        identity_(host.empty() ? host_identity() : host_identity() + " " + host) {
    for (int r = 0; r < transport_->size(); r++) all_.push_back(r);
  }

  // Learns who is where.
  Status start() {
    COHORT_ASSIGN_OR_RETURN(hosts_, exchange(host_, kSetupTimeout));
    COHORT_ASSIGN_OR_RETURN(identities_, exchange(identity_, kSetupTimeout));
    return {};
  }

  int rank() const override { return transport_->rank(); }
  int size() const override { return transport_->size(); }
  const std::string& host() const override { return host_; }

  Result<std::vector<std::string>> exchange(const std::string& text, Duration timeout) override {
    return transport_->exchange(all_, "exchange", text, timeout);
  }

  Result<std::unique_ptr<Communicator>> group(const std::vector<int>& members,
                                              const std::string& label) override;

 private:
  Result<std::unique_ptr<RoundCommunicator>> shm_group(GroupInfo info, const std::string& label);
  Result<std::unique_ptr<RoundCommunicator>> mpi_group(GroupInfo info);
  Result<std::unique_ptr<Communicator>> mixed_group(GroupInfo info, const HostMap& hosts,
                                                    const std::string& label);

  const std::shared_ptr<MpiTransport> transport_;
  const CommunicatorKind kind_;
  const std::string host_, identity_;
  std::vector<int> all_;
  std::vector<std::string> hosts_, identities_;
};

Result<std::unique_ptr<Communicator>> MpiWorld::group(const std::vector<int>& members,
                                                      const std::string& label) {
  COHORT_RETURN_IF_ERROR(check_members(members, rank(), size()));
  if (members.size() == 1) return make_solo_communicator(label);
  GroupInfo info{
      .rank = 0, .world_ranks = members, .hosts = {}, .name = group_name("mpi", label, members)};
  while (members[size_t(info.rank)] != rank()) info.rank++;
  std::vector<std::string> identities;
  for (int m : members) {
    info.hosts.push_back(hosts_[size_t(m)]);
    identities.push_back(identities_[size_t(m)]);
  }
  const std::optional<HostMap> hosts = HostMap::make(identities);
  if (kind_ != CommunicatorKind::mpi && hosts && hosts->hosts() == 1) {
    Result<std::unique_ptr<RoundCommunicator>> shm = shm_group(info, label);
    // UNAVAILABLE is what all members agreed on; anything else is a failure of the exchange.
    if (shm.ok() || kind_ == CommunicatorKind::shm || shm.status().code() != Code::kUnavailable)
      return as_communicator(std::move(shm));
    log_warning(shm.status().message() + "; it uses MPI");
  } else if (kind_ == CommunicatorKind::shm) {
    return failed_precondition(group_name("shm", label, members) +
                               ": its ranks do not share a host (or do not see each other's "
                               "processes); use MPI for it");
  } else if (kind_ == CommunicatorKind::automatic && hosts && hosts->mixed()) {
    return mixed_group(std::move(info), *hosts, label);
  }
  return as_communicator(mpi_group(std::move(info)));
}

Result<std::unique_ptr<RoundCommunicator>> MpiWorld::shm_group(GroupInfo info,
                                                               const std::string& label) {
  info.name = group_name("shm", label, info.world_ranks);
  return make_shm_part(info, [&](const std::string& text) {
    return transport_->exchange(info.world_ranks, info.name, text, kSetupTimeout);
  });
}

// Shared memory may fail on one host alone: the members of all hosts agree on what they use.
Result<std::unique_ptr<Communicator>> MpiWorld::mixed_group(GroupInfo info, const HostMap& hosts,
                                                            const std::string& label) {
  std::unique_ptr<RoundCommunicator> within;
  const int host = hosts.host_of(info.rank);
  std::string failure;
  if (hosts.size(host) > 1) {
    Result<std::unique_ptr<RoundCommunicator>> shm =
        shm_group(subgroup(info, hosts.members(host)), label);
    failure = shm.status().message();
    if (shm.ok()) within = std::move(*shm);
  }
  COHORT_ASSIGN_OR_RETURN(
      const std::vector<std::string> failures,
      transport_->exchange(info.world_ranks, info.name + " over hosts", failure, kSetupTimeout));
  for (const std::string& text : failures) {
    if (text.empty()) continue;
    log_warning(text + "; " + info.name + " uses MPI alone");
    return as_communicator(mpi_group(std::move(info)));
  }
  const auto local = [&](const std::vector<int>&) -> Result<std::unique_ptr<RoundCommunicator>> {
    return std::move(within);
  };
  const auto between = [&](const std::vector<int>& members) {
    GroupInfo some = subgroup(info, members);
    some.name = group_name("mpi", label, some.world_ranks);
    return mpi_group(std::move(some));
  };
  GroupInfo whole = info;
  whole.name = group_name("hierarchical", label, info.world_ranks);
  return make_hierarchical_communicator(std::move(whole), hosts, local, between);
}

// Members agree on tags that none of them uses: groups of the same two ranks must not mix.
Result<std::unique_ptr<RoundCommunicator>> MpiWorld::mpi_group(GroupInfo info) {
  COHORT_ASSIGN_OR_RETURN(
      const std::vector<std::string> texts,
      transport_->exchange(info.world_ranks, info.name, std::to_string(transport_->next_tag()),
                           kSetupTimeout));
  int first = transport_->next_tag();
  for (const std::string& text : texts) {
    int tag = 0;
    std::from_chars(text.data(), text.data() + text.size(), tag);
    first = std::max(first, tag);
  }
  constexpr int kLeastTagLimit = 32767;  // what every MPI library offers
  if (first + MpiCommunicator::kTags > kLeastTagLimit)
    return resource_exhausted(info.name + ": too many groups have been made");
  transport_->use_tags_below(first + MpiCommunicator::kTags);
  return std::unique_ptr<RoundCommunicator>(
      std::make_unique<MpiCommunicator>(std::move(info), transport_, first));
}

}  // namespace

Result<std::unique_ptr<World>> make_mpi_world(CommunicatorKind kind, const std::string& host) {
  COHORT_ASSIGN_OR_RETURN(std::shared_ptr<MpiTransport> transport, MpiTransport::initialise());
  auto world = std::make_unique<MpiWorld>(std::move(transport), kind, host);
  COHORT_RETURN_IF_ERROR(world->start());
  return std::unique_ptr<World>(std::move(world));
}

}  // namespace cohort
