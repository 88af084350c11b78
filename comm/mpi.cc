// SPDX-License-Identifier: Apache-2.0
// The world of ranks that mpirun has started.
#include <unistd.h>

#include <array>
#include <charconv>

#include "base/log.h"
#include "comm/communicator.h"
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

class MpiWorld : public World {
 public:
  MpiWorld(std::shared_ptr<MpiTransport> transport, CommunicatorKind kind)
      : transport_(std::move(transport)), kind_(kind), host_(host_name()) {
    for (int r = 0; r < transport_->size(); r++) all_.push_back(r);
  }

  // Learns who is where.
  Status start() {
    COHORT_ASSIGN_OR_RETURN(hosts_, exchange(host_, kSetupTimeout));
    COHORT_ASSIGN_OR_RETURN(identities_, exchange(host_identity(), kSetupTimeout));
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
  bool share_a_host(const std::vector<int>& members) const {
    for (int m : members)
      if (identities_[size_t(m)] != identities_[size_t(members[0])]) return false;
    return true;
  }
  Result<std::unique_ptr<Communicator>> mpi_group(GroupInfo info);

  const std::shared_ptr<MpiTransport> transport_;
  const CommunicatorKind kind_;
  const std::string host_;
  std::vector<int> all_;
  std::vector<std::string> hosts_, identities_;
};

Result<std::unique_ptr<Communicator>> MpiWorld::group(const std::vector<int>& members,
                                                      const std::string& label) {
  COHORT_RETURN_IF_ERROR(check_members(members, rank(), size()));
  if (members.size() == 1) return make_solo_communicator(label);
  GroupInfo info{
      .rank = 0, .world_ranks = members, .hosts = {}, .name = group_name("shm", label, members)};
  while (members[size_t(info.rank)] != rank()) info.rank++;
  for (int m : members) info.hosts.push_back(hosts_[size_t(m)]);
  if (kind_ != CommunicatorKind::mpi && share_a_host(members)) {
    Result<std::unique_ptr<Communicator>> shm =
        make_shm_communicator(info, [&](const std::string& text) {
          return transport_->exchange(members, info.name, text, kSetupTimeout);
        });
    // UNAVAILABLE is what all members agreed on; anything else is a failure of the exchange.
    if (shm.ok() || kind_ == CommunicatorKind::shm || shm.status().code() != Code::kUnavailable)
      return shm;
    log_warning(shm.status().message() + "; it uses MPI");
  } else if (kind_ == CommunicatorKind::shm) {
    return failed_precondition(info.name + ": its ranks do not share a host (or do not see each " +
                               "other's processes); use MPI for it");
  }
  info.name = group_name("mpi", label, members);
  return mpi_group(std::move(info));
}

// Members agree on tags that none of them uses: groups of the same two ranks must not mix.
Result<std::unique_ptr<Communicator>> MpiWorld::mpi_group(GroupInfo info) {
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
  return std::unique_ptr<Communicator>(
      std::make_unique<MpiCommunicator>(std::move(info), transport_, first));
}

}  // namespace

Result<std::unique_ptr<World>> make_mpi_world(CommunicatorKind kind) {
  COHORT_ASSIGN_OR_RETURN(std::shared_ptr<MpiTransport> transport, MpiTransport::initialise());
  auto world = std::make_unique<MpiWorld>(std::move(transport), kind);
  COHORT_RETURN_IF_ERROR(world->start());
  return std::unique_ptr<World>(std::move(world));
}

}  // namespace cohort
