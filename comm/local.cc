// SPDX-License-Identifier: Apache-2.0
// Ranks as threads of one process.
#include <sys/mman.h>

#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>

#include "base/check.h"
#include "comm/communicator.h"
#include "comm/hierarchical.h"
#include "comm/shared_communicator.h"

namespace cohort {
namespace {

// Pages that are touched when they are used, unlike those of a vector.
class Pages {
 public:
  static Result<std::shared_ptr<Pages>> allocate(int64_t bytes) {
    void* map = ::mmap(nullptr, size_t(bytes), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) return resource_exhausted("no memory for a group of local ranks");
    return std::make_shared<Pages>(map, bytes);
  }
  Pages(void* map, int64_t bytes) : map_(map), bytes_(bytes) {}
  ~Pages() { ::munmap(map_, size_t(bytes_)); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(map_); }

 private:
  void* map_;
  int64_t bytes_;
};

// What the worlds of one process share.
class LocalSpace {
 public:
  explicit LocalSpace(int size) : size_(size), texts_(size_t(size)), came_(size_t(size)) {}
  int size() const { return size_; }

  Result<std::vector<std::string>> exchange(int rank, const std::string& text, Duration timeout) {
    std::unique_lock lock(mutex_);
    const uint64_t mine = generation_;
    texts_[size_t(rank)] = text;
    came_[size_t(rank)] = true;
    if (++arrived_ == size_) {
      exchanged_ = texts_;
      came_.assign(size_t(size_), false);
      arrived_ = 0;
      generation_++;
      changed_.notify_all();
    } else if (!changed_.wait_for(lock, timeout, [&] { return generation_ != mine; })) {
      came_[size_t(rank)] = false;
      arrived_--;
      return deadline_exceeded(missing(rank, timeout));
    }
    return exchanged_;
  }

  // The memory of a group: made by the first member that asks, dropped here when all have it.
  Result<std::shared_ptr<Pages>> region(const std::string& name, int number, int members) {
    const std::lock_guard lock(mutex_);
    const std::pair key(name, number);
    Entry& entry = regions_[key];
    if (!entry.pages) {
      Result<std::shared_ptr<Pages>> pages = Pages::allocate(SharedRegion::bytes_for(members));
      if (!pages.ok()) return pages.status();
      entry.pages = *pages;
    }
    std::shared_ptr<Pages> pages = entry.pages;
    if (++entry.taken == members) regions_.erase(key);
    return pages;
  }

 private:
  struct Entry {
    std::shared_ptr<Pages> pages;
    int taken = 0;
  };

  std::string missing(int rank, Duration timeout) const {
    std::string names;
    for (int r = 0; r < size_; r++)
      if (r != rank && !came_[size_t(r)])
        names += (names.empty() ? "rank " : ", rank ") + std::to_string(r);
    return concat("exchange: ", names, " did not come within ", seconds(timeout), " s");
  }

  const int size_;
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t generation_ = 0;
  int arrived_ = 0;
  std::vector<std::string> texts_, exchanged_;
  std::vector<bool> came_;
  std::map<std::pair<std::string, int>, Entry> regions_;
};

class LocalWorld : public World {
 public:
  LocalWorld(std::shared_ptr<LocalSpace> space, std::vector<std::string> hosts, int rank)
      : space_(std::move(space)), hosts_(std::move(hosts)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return space_->size(); }
  const std::string& host() const override { return hosts_[size_t(rank_)]; }

  Result<std::vector<std::string>> exchange(const std::string& text, Duration timeout) override {
    return space_->exchange(rank_, text, timeout);
  }

  Result<std::unique_ptr<Communicator>> group(const std::vector<int>& members,
                                              const std::string& label) override;

 private:
  Result<std::unique_ptr<RoundCommunicator>> shared_group(GroupInfo info);

  const std::shared_ptr<LocalSpace> space_;
  const std::vector<std::string> hosts_;
  const int rank_;
  std::map<std::string, int> made_;  // groups of each name so far: tells equal ones apart
};

Result<std::unique_ptr<RoundCommunicator>> LocalWorld::shared_group(GroupInfo info) {
  COHORT_ASSIGN_OR_RETURN(std::shared_ptr<Pages> pages,
                          space_->region(info.name, made_[info.name]++, info.size()));
  const SharedRegion region(pages->data(), info.size());
  return std::unique_ptr<RoundCommunicator>(
      std::make_unique<SharedCommunicator>(std::move(info), region, std::move(pages), nullptr));
}

Result<std::unique_ptr<Communicator>> LocalWorld::group(const std::vector<int>& members,
                                                        const std::string& label) {
  COHORT_RETURN_IF_ERROR(check_members(members, rank_, size()));
  if (members.size() == 1) return make_solo_communicator(label);
  GroupInfo info{
      .rank = 0, .world_ranks = members, .hosts = {}, .name = group_name("local", label, members)};
  while (members[size_t(info.rank)] != rank_) info.rank++;
  for (int m : members) info.hosts.push_back(hosts_[size_t(m)]);
  const std::optional<HostMap> hosts = HostMap::make(info.hosts);
  if (!hosts || !hosts->mixed()) {
    COHORT_ASSIGN_OR_RETURN(std::unique_ptr<RoundCommunicator> shared,
                            shared_group(std::move(info)));
    return std::unique_ptr<Communicator>(std::move(shared));
  }
  info.name = group_name("hierarchical", label, members);
  const auto part = [&](const char* kind) {
    return [this, kind, &info, &label](const std::vector<int>& some) {
      GroupInfo group = subgroup(info, some);
      group.name = group_name(kind, label, group.world_ranks);
      return shared_group(std::move(group));
    };
  };
  return make_hierarchical_communicator(info, *hosts, part("within"), part("between"));
}

}  // namespace

std::vector<std::unique_ptr<World>> make_local_hosts(const std::vector<std::string>& hosts) {
  COHORT_CHECK(!hosts.empty());
  const auto space = std::make_shared<LocalSpace>(int(hosts.size()));
  std::vector<std::unique_ptr<World>> worlds;
  for (int rank = 0; rank < space->size(); rank++)
    worlds.push_back(std::make_unique<LocalWorld>(space, hosts, rank));
  return worlds;
}

std::vector<std::unique_ptr<World>> make_local_worlds(int size) {
  COHORT_CHECK_GE(size, 1);
  return make_local_hosts(std::vector<std::string>(size_t(size), "localhost"));
}

}  // namespace cohort
