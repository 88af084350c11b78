// SPDX-License-Identifier: Apache-2.0
#include "tests/support/forked_ranks.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <map>
#include <new>
#include <thread>

#include "comm/shm.h"

namespace cohort {
namespace {

constexpr int kRanks = 16, kChannels = 64, kExchanges = 32, kText = 256;

// Memory that the ranks inherit: texts[channel][number of the exchange][world rank].
struct Board {
  struct Entry {
    std::atomic<uint32_t> written;
    char text[kText];
  };
  Entry entries[kChannels][kExchanges][kRanks];
};

Board* make_board() {
  void* memory =
      ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  COHORT_CHECK(memory != MAP_FAILED);
  return static_cast<Board*>(memory);  // zeros are valid entries
}

class ForkedWorld : public World {
 public:
  ForkedWorld(Board* board, int rank, int size) : board_(board), rank_(rank), size_(size) {
    for (int r = 0; r < size; r++) all_.push_back(r);
  }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  const std::string& host() const override { return host_; }

  Result<std::vector<std::string>> exchange(const std::string& text, Duration timeout) override {
    return exchange(0, all_, text, timeout);
  }

  Result<std::unique_ptr<Communicator>> group(const std::vector<int>& members,
                                              const std::string& label) override {
    COHORT_RETURN_IF_ERROR(check_members(members, rank_, size_));
    if (members.size() == 1) return make_solo_communicator(label);
    GroupInfo info{.rank = 0,
                   .world_ranks = members,
                   .hosts = std::vector<std::string>(members.size(), host_),
                   .name = group_name("shm", label, members)};
    while (members[size_t(info.rank)] != rank_) info.rank++;
    const int channel = 1 + int(std::hash<std::string>()(info.name) % (kChannels - 1));
    return make_shm_communicator(info, [&](const std::string& text) {
      return exchange(channel, members, text, std::chrono::seconds(20));
    });
  }

 private:
  Result<std::vector<std::string>> exchange(int channel, const std::vector<int>& members,
                                            const std::string& text, Duration timeout) {
    const int number = exchanges_[channel]++;
    COHORT_CHECK_LT(number, kExchanges);
    auto& entries = board_->entries[channel][number];
    std::snprintf(entries[rank_].text, kText, "%s", text.c_str());
    entries[rank_].written.store(1, std::memory_order_release);
    const Deadline deadline = Deadline::after(timeout);
    std::vector<std::string> texts;
    for (int r : members) {
      while (!entries[r].written.load(std::memory_order_acquire)) {
        if (deadline.expired()) return deadline_exceeded(concat("rank ", r, " did not come"));
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      texts.push_back(entries[r].text);
    }
    return texts;
  }

  Board* const board_;
  const int rank_, size_;
  const std::string host_ = "testhost";
  std::vector<int> all_;
  std::map<int, int> exchanges_;
};

[[noreturn]] void run_rank(Board* board, int rank, int size,
                           const std::function<void(World&)>& body) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  bool failed = false;
  try {
    ForkedWorld world(board, rank, size);
    body(world);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
    failed = true;
  }
  std::fflush(nullptr);
  ::_exit(failed || ::testing::Test::HasFailure() ? 1 : 0);
}

}  // namespace

ForkedRanks::ForkedRanks(int ranks, const std::function<void(World&)>& body) {
  COHORT_CHECK_LE(ranks, kRanks);
  Board* board = make_board();
  std::fflush(nullptr);
  for (int r = 0; r < ranks; r++) {
    const pid_t pid = ::fork();
    COHORT_CHECK_GE(pid, 0);
    if (pid == 0) run_rank(board, r, ranks, body);
    pids_.push_back(pid);
  }
  ::munmap(board, sizeof(Board));
}

ForkedRanks::~ForkedRanks() {
  for (pid_t& pid : pids_) {
    if (pid <= 0) continue;
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
}

void ForkedRanks::signal(int rank, int number) const { ::kill(pids_[size_t(rank)], number); }

bool ForkedRanks::succeeded(int rank) {
  int status = 0;
  if (::waitpid(pids_[size_t(rank)], &status, 0) < 0) return false;
  pids_[size_t(rank)] = 0;
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

void run_forked_ranks(int ranks, const std::function<void(World&)>& body) {
  ForkedRanks forked(ranks, body);
  for (int r = 0; r < ranks; r++) EXPECT_TRUE(forked.succeeded(r)) << "rank " << r;
}

}  // namespace cohort
