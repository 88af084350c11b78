// SPDX-License-Identifier: Apache-2.0
// The emulated NCCL with every rank a process of its own: forked here, or started by mpirun
// (nccl_processes_test.sh runs this program with --rank-of-mpi). Sections are those of the
// NCCL 2.28 user guide.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "tests/cuda/nccl_ranks.h"

namespace cohort::test {
namespace {
using Clock = std::chrono::steady_clock;

float value(int rank, std::size_t i) { return float(rank + 1) * 0.25f + float(i % 7); }

// What every rank does; the first thing that was wrong, or "".
std::string sums_and_messages(Rank& r, std::size_t n) {
  std::vector<float> own(n);
  for (std::size_t i = 0; i < n; ++i) own[i] = value(r.rank, i);
  const Values<float> in(own), sum(n), all(n * r.size), from(n);
  const int next = (r.rank + 1) % r.size, before = (r.rank + r.size - 1) % r.size;
  const bool taken =
      ncclAllReduce(in, sum, n, ncclFloat32, ncclSum, r.comm, r.stream) == ncclSuccess &&
      ncclAllGather(in, all, n, ncclFloat32, r.comm, r.stream) == ncclSuccess &&
      ncclGroupStart() == ncclSuccess &&
      ncclSend(in, n, ncclFloat32, next, r.comm, r.stream) == ncclSuccess &&
      ncclRecv(from, n, ncclFloat32, before, r.comm, r.stream) == ncclSuccess &&
      ncclGroupEnd() == ncclSuccess;
  if (!taken) return std::string("a call failed: ") + ncclGetLastError(r.comm);
  r.sync();
  const auto s = sum.get(), g = all.get(), m = from.get();
  for (std::size_t i = 0; i < n; ++i) {
    double want = 0;  // exact in float32
    for (int q = 0; q < r.size; ++q) want += value(q, i);
    if (s[i] != float(want)) return "wrong sum at " + std::to_string(i);
    if (m[i] != value(before, i)) return "wrong message at " + std::to_string(i);
    for (int q = 0; q < r.size; ++q)
      if (g[q * n + i] != value(q, i)) return "wrong piece of rank " + std::to_string(q);
  }
  return "";
}

std::string repeated(Rank& r) {
  for (int k = 0; k < 20; ++k)
    if (const auto wrong = sums_and_messages(r, 1 + 997 * k); !wrong.empty()) return wrong;
  return "";
}

// Waits for an error of the communicator, as a program does that must not hang; ms until then.
long wait_for_error(Rank& r, ncclResult_t* state) {
  const auto start = Clock::now();
  *state = ncclSuccess;
  while (*state == ncclSuccess && Clock::now() - start < std::chrono::seconds(10)) {
    if (cudaStreamQuery(r.stream) == cudaSuccess) break;
    EXPECT_EQ(ncclCommGetAsyncError(r.comm, state), ncclSuccess);
  }
  return long((Clock::now() - start) / std::chrono::milliseconds(1));
}

struct End {
  int status;
  std::string text;  // what the rank returned
};

// f as n processes. The id is made here, by a process that has no rank.
std::vector<End> fork_ranks(int n, const std::function<std::string(Rank&)>& f) {
  const ncclUniqueId id = unique_id();
  std::vector<std::pair<pid_t, int>> children;
  for (int r = 0; r < n; ++r) {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::alarm(30);
      std::string text;
      try {
        Rank rank(0, n);  // each process has its own device 0
        rank.rank = r;
        text = ncclCommInitRank(&rank.comm, n, id, r) == ncclSuccess ? f(rank)
                                                                     : ncclGetLastError(nullptr);
      } catch (const emu::Error& e) {
        text = e.what;
      }
      const bool written = ::write(ends[1], text.data(), text.size()) == ssize_t(text.size());
      ::_exit(written && !::testing::Test::HasFailure() ? 0 : 1);
    }
    ::close(ends[1]);
    children.emplace_back(pid, ends[0]);
  }
  std::vector<End> result;
  for (auto [pid, fd] : children) {
    End end{};
    char buffer[4096];
    for (ssize_t k; (k = ::read(fd, buffer, sizeof buffer)) > 0;) end.text.append(buffer, k);
    ::close(fd);
    EXPECT_EQ(::waitpid(pid, &end.status, 0), pid);
    result.push_back(end);
  }
  return result;
}

void expect_well(const std::vector<End>& ends) {
  for (std::size_t r = 0; r < ends.size(); ++r) {
    EXPECT_EQ(ends[r].status, 0) << "rank " << r;
    EXPECT_EQ(ends[r].text, "") << "rank " << r;
  }
}

TEST(NcclProcesses, SumsAndMessages) {
  for (int n : {2, 4}) expect_well(fork_ranks(n, repeated));
}

// A megabyte through each channel, and calls of one element between.
TEST(NcclProcesses, LargeAndSmall) {
  expect_well(fork_ranks(2, [](Rank& r) -> std::string {
    for (std::size_t n : {1, 300000, 1, 300000})
      if (const auto wrong = sums_and_messages(r, n); !wrong.empty()) return wrong;
    return "";
  }));
}

// Section "Using NCCL with CUDA Graphs": every process replays its own graph of the same capture.
TEST(NcclProcesses, Graphs) {
  expect_well(fork_ranks(3, [](Rank& r) -> std::string {
    const Values<float> x(std::vector<float>(8, 1.0f));
    cudaGraph_t graph{};
    cudaGraphExec_t exec{};
    EXPECT_EQ(cudaStreamBeginCapture(r.stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    EXPECT_EQ(ncclAllReduce(x, x, 8, ncclFloat32, ncclSum, r.comm, r.stream), ncclSuccess);
    EXPECT_EQ(cudaStreamEndCapture(r.stream, &graph), cudaSuccess);
    EXPECT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
    for (int k = 0; k < 5; ++k) EXPECT_EQ(cudaGraphLaunch(exec, r.stream), cudaSuccess);
    r.sync();
    EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    return x.get() == std::vector<float>(8, 243.0f) ? "" : "wrong after five replays";
  }));
}

TEST(NcclProcesses, Split) {
  expect_well(fork_ranks(4, [](Rank& r) -> std::string {
    Rank half(0, 2);
    if (ncclCommSplit(r.comm, r.rank / 2, r.rank, &half.comm, nullptr) != ncclSuccess)
      return ncclGetLastError(r.comm);
    EXPECT_EQ(ncclCommUserRank(half.comm, &half.rank), ncclSuccess);
    if (half.rank != r.rank % 2) return "wrong rank in the half";
    if (const auto wrong = sums_and_messages(half, 50); !wrong.empty()) return wrong;
    return sums_and_messages(r, 50);
  }));
}

// Both processes say the same, without having to talk again.
TEST(NcclProcesses, MismatchIsReportedOnBothSides) {
  for (const End& end : fork_ranks(2, [](Rank& r) -> std::string {
         const Values<float> x(8);
         EXPECT_EQ(ncclAllReduce(x, x, 7 + r.rank, ncclFloat32, ncclSum, r.comm, r.stream),
                   ncclSuccess);
         r.sync();
         return "";
       })) {
    EXPECT_THAT(end.text, ::testing::HasSubstr("rank 0 calls ncclAllReduce of 7 x float32, sum"));
    EXPECT_THAT(end.text, ::testing::HasSubstr("rank 1 calls ncclAllReduce of 8 x float32, sum"));
  }
}

// Section "Fault Tolerance".
TEST(NcclProcesses, PeersLearnOfAKilledProcessAndOfAnAbort) {
  for (bool killed : {true, false}) {
    const auto ends = fork_ranks(3, [killed](Rank& r) -> std::string {
      const Values<float> x(8);
      if (r.rank == 1) {
        if (killed) ::raise(SIGKILL);
        ncclCommAbort(std::exchange(r.comm, nullptr));
        return "aborted";
      }
      EXPECT_EQ(ncclAllReduce(x, x, 8, ncclFloat32, ncclSum, r.comm, r.stream), ncclSuccess);
      ncclResult_t state;
      const long ms = wait_for_error(r, &state);
      std::string text = ncclGetLastError(r.comm);
      ncclCommAbort(std::exchange(r.comm, nullptr));
      r.sync();
      return text + (state == ncclRemoteError && ms < 2000 ? ", in time" : ", late or wrong");
    });
    for (int r : {0, 2}) {
      EXPECT_EQ(ends[r].status, 0);
      // The second to notice may hear of the first one's abort instead.
      EXPECT_THAT(ends[r].text,
                  ::testing::AnyOf(killed ? "the process of rank 1 has ended, in time"
                                          : "rank 1 aborted, in time",
                                   "rank " + std::to_string(2 - r) + " aborted, in time"));
    }
  }
}

TEST(NcclProcesses, AMissingRankEndsTheWait) {
  ::setenv("COHORT_EMULATED_NCCL_TIMEOUT", "0.5", 1);
  const auto ends = fork_ranks(2, [](Rank& r) -> std::string {
    const Values<float> x(8);
    if (r.rank == 0) {
      EXPECT_EQ(ncclReduceScatter(x, x, 4, ncclFloat32, ncclSum, r.comm, r.stream), ncclSuccess);
      r.sync();
    }
    ::sleep(1);
    return "";
  });
  ::unsetenv("COHORT_EMULATED_NCCL_TIMEOUT");
  EXPECT_THAT(ends[0].text,
              ::testing::HasSubstr("ncclReduceScatter of 4 x float32, sum, number 1 (rank 0 of 2) "
                                   "waited 500 ms for rank 1"));
}

// However ranks end, no name of theirs is left in /dev/shm or /tmp.
TEST(NcclProcesses, NothingStaysBehind) {
  const auto names = [] {
    std::vector<std::string> found;
    for (const char* folder : {"/dev/shm", "/tmp"})
      for (const auto& entry : std::filesystem::directory_iterator(folder))
        if (entry.path().filename().string().find("nccl") != std::string::npos)
          found.push_back(entry.path());
    return found;
  };
  const auto before = names();
  fork_ranks(2, [](Rank& r) -> std::string {
    if (r.rank == 0) ::raise(SIGKILL);
    ncclResult_t state = ncclSuccess;
    wait_for_error(r, &state);
    return "";
  });
  EXPECT_EQ(names(), before);
}

// One rank under mpirun: the id goes through a file that the script names.
int rank_of_mpi() {
  const char* text = std::getenv("OMPI_COMM_WORLD_RANK");
  const char* size = std::getenv("OMPI_COMM_WORLD_SIZE");
  const char* path = std::getenv("NCCL_ID_FILE");
  if (text == nullptr || size == nullptr || path == nullptr) return 2;
  ncclUniqueId id = unique_id();
  const int rank = std::atoi(text);
  if (rank == 0) {
    std::ofstream(std::string(path) + ".new", std::ios::binary)
        .write(id.internal, sizeof id.internal);
    std::filesystem::rename(std::string(path) + ".new", path);
  }
  const auto deadline = Clock::now() + std::chrono::seconds(20);
  while (!std::filesystem::exists(path) && Clock::now() < deadline) ::usleep(1000);
  std::ifstream(path, std::ios::binary).read(id.internal, sizeof id.internal);
  Rank r(0, std::atoi(size));
  r.rank = rank;
  std::string wrong = "cannot start";
  if (ncclCommInitRank(&r.comm, r.size, id, rank) == ncclSuccess) wrong = repeated(r);
  if (!wrong.empty()) std::fprintf(stderr, "rank %d: %s\n", rank, wrong.c_str());
  return wrong.empty() ? 0 : 1;
}
}  // namespace
}  // namespace cohort::test

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "--rank-of-mpi") == 0) return cohort::test::rank_of_mpi();
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
