// SPDX-License-Identifier: Apache-2.0
#include "comm/control.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "comm/socket.h"

namespace cohort {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr Duration kLong = std::chrono::seconds(20);
// A lease that no load on the test's machine exceeds, and one to wait for.
const ControlTimes kQuick{.heartbeat = milliseconds(50), .lease = kLong};
const ControlTimes kShortLease{.heartbeat = milliseconds(50), .lease = milliseconds(600)};

std::unique_ptr<ControlHub> make_hub(ControlTimes times = kQuick) {
  Result<std::unique_ptr<ControlHub>> hub = ControlHub::listen("127.0.0.1", times);
  return std::move(hub).value();
}

std::unique_ptr<ControlLink> make_link(const ControlHub& hub, int rank,
                                       ControlTimes times = kQuick) {
  return ControlLink::connect(hub.address(), rank, "host" + std::to_string(rank), times, kLong)
      .value();
}

std::string host_of(const std::string& address) { return address.substr(0, address.find(':')); }
int port_of(const std::string& address) { return std::stoi(address.substr(address.find(':') + 1)); }

// A rank in a process of its own, which can be killed and stopped. It is forked before this process
// starts threads, so make it before the hub; connect() tells it where the hub is.
class RankProcess {
 public:
  explicit RankProcess(int rank) {
    EXPECT_EQ(::pipe(pipe_), 0);
    pid_ = ::fork();
    if (pid_ == 0) run(rank);
    ::close(pipe_[0]);
  }
  ~RankProcess() {
    ::close(pipe_[1]);
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  void connect(const ControlHub& hub) const {
    const std::string& address = hub.address();
    EXPECT_EQ(::write(pipe_[1], address.data(), address.size()), ssize_t(address.size()));
  }
  void signal(int number) const { ::kill(pid_, number); }

 private:
  // Stays connected until it is killed.
  [[noreturn]] void run(int rank) {
    char address[256] = "";
    if (::read(pipe_[0], address, sizeof address - 1) <= 0) ::_exit(1);
    auto link = ControlLink::connect(address, rank, "n" + std::to_string(rank), kQuick, kLong);
    if (!link.ok()) ::_exit(1);
    (*link)->set_progress({.step = 7, .busy = true, .where = "all-reduce tp, layer 3"});
    for (;;) ::pause();
  }

  int pipe_[2] = {-1, -1};
  pid_t pid_ = 0;
};

TEST(Control, PlansGoDownAndResultsComeUpInOrder) {
  auto hub = make_hub();
  auto one = make_link(*hub, 1), two = make_link(*hub, 2);
  ASSERT_TRUE(hub->accept(3, kLong).ok());
  for (int i = 0; i < 100; i++) {
    ASSERT_TRUE(hub->broadcast(FrameType::plan, "plan " + std::to_string(i)).ok());
    for (ControlLink* link : {one.get(), two.get()}) {
      Result<Frame> plan = link->next(kLong);
      ASSERT_TRUE(plan.ok()) << plan.status().to_string();
      EXPECT_EQ(plan->type, FrameType::plan);
      EXPECT_EQ(plan->payload, "plan " + std::to_string(i));
      ASSERT_TRUE(link->send(FrameType::result, "result " + std::to_string(i)).ok());
    }
    std::vector<int> from(3);
    for (int k = 0; k < 2; k++) {
      Result<Frame> result = hub->next(kLong);
      ASSERT_TRUE(result.ok()) << result.status().to_string();
      EXPECT_EQ(result->payload, "result " + std::to_string(i));
      from[size_t(result->rank)]++;
    }
    EXPECT_THAT(from, ::testing::ElementsAre(0, 1, 1));
  }
}

TEST(Control, LargestFramePasses) {
  auto hub = make_hub();
  auto link = make_link(*hub, 1);
  ASSERT_TRUE(hub->accept(2, kLong).ok());
  std::string large(size_t(kMaxFrameBytes), 'x');
  large.back() = 'y';
  ASSERT_TRUE(hub->broadcast(FrameType::plan, large).ok());
  Result<Frame> plan = link->next(kLong);
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  EXPECT_TRUE(plan->payload == large);
  EXPECT_EQ(hub->broadcast(FrameType::plan, large + "z").code(), Code::kInvalidArgument);
}

TEST(Control, NextTimesOut) {
  auto hub = make_hub();
  auto link = make_link(*hub, 1);
  ASSERT_TRUE(hub->accept(2, kLong).ok());
  EXPECT_EQ(hub->next(milliseconds(20)).status().code(), Code::kDeadlineExceeded);
  EXPECT_EQ(link->next(milliseconds(20)).status().code(), Code::kDeadlineExceeded);
}

TEST(Control, E01AcceptNamesTheRanksThatDidNotArrive) {
  auto hub = make_hub();
  auto link = make_link(*hub, 2);
  const Status status = hub->accept(4, milliseconds(200));
  EXPECT_EQ(status.code(), Code::kDeadlineExceeded);
  EXPECT_THAT(status.message(), HasSubstr("rank 1, 3 did not connect"));
  EXPECT_THAT(status.message(), HasSubstr("2 (host host2)"));
}

TEST(Control, HeartbeatsCarryProgress) {
  auto hub = make_hub();
  auto link = make_link(*hub, 1);
  ASSERT_TRUE(hub->accept(2, kLong).ok());
  const WorkTotals work{.compute_seconds = 1.25,
                        .communication_seconds = 0.5,
                        .hidden_communication_seconds = 0.375,
                        .idle_seconds = 0.1,
                        .bytes_sent = 1ull << 40};
  link->set_progress({.step = 41, .busy = true, .where = "send pp", .work = work});
  hub->set_progress({.step = 42, .busy = false, .where = "idle"});
  const Deadline deadline = Deadline::after(kLong);
  while (hub->peers()[1].progress.step != 41 && !deadline.expired())
    std::this_thread::sleep_for(milliseconds(5));
  const std::vector<PeerState> peers = hub->peers();
  ASSERT_EQ(peers.size(), 2u);
  EXPECT_EQ(peers[0].progress.step, 42u);
  EXPECT_EQ(peers[1].rank, 1);
  EXPECT_TRUE(peers[1].connected);
  EXPECT_TRUE(peers[1].progress.busy);
  EXPECT_EQ(peers[1].progress.where, "send pp");
  EXPECT_EQ(peers[1].progress.work, work);
  EXPECT_EQ(peers[0].progress.work, WorkTotals());
  // A busy rank whose step does not rise makes no progress, though its heartbeats go on.
  const TimePoint stuck = peers[1].last_progress;
  while (hub->peers()[1].last_heartbeat == peers[1].last_heartbeat && !deadline.expired())
    std::this_thread::sleep_for(milliseconds(5));
  EXPECT_GT(hub->peers()[1].last_heartbeat, peers[1].last_heartbeat);
  EXPECT_EQ(hub->peers()[1].last_progress, stuck);
}

TEST(Control, E03KilledRankIsNamedAtOnce) {
  const RankProcess child(1);
  auto hub = make_hub();
  child.connect(*hub);
  ASSERT_TRUE(hub->accept(2, kLong).ok());
  const Deadline deadline = Deadline::after(kLong);
  while (hub->peers()[1].progress.step != 7 && !deadline.expired())
    std::this_thread::sleep_for(milliseconds(5));
  const TimePoint start = std::chrono::steady_clock::now();
  child.signal(SIGKILL);
  const Status status = hub->next(kLong).status();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("rank 1 on host n1"));
  EXPECT_THAT(status.message(), HasSubstr("all-reduce tp, layer 3"));
  EXPECT_EQ(hub->broadcast(FrameType::plan, "x").code(), Code::kUnavailable);
}

TEST(Control, E04StoppedRankIsNamedAfterTheLease) {
  const RankProcess child(1);
  auto hub = make_hub(kShortLease);
  child.connect(*hub);
  ASSERT_TRUE(hub->accept(2, kLong).ok());
  child.signal(SIGSTOP);
  const TimePoint start = std::chrono::steady_clock::now();
  const Status status = hub->next(kLong).status();
  const Duration waited = std::chrono::steady_clock::now() - start;
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("rank 1 on host n1"));
  EXPECT_THAT(status.message(), HasSubstr("no heartbeat"));
  EXPECT_LT(waited, kShortLease.lease + std::chrono::seconds(4));
}

// Both ends, in a process that is stopped for longer than a lease: silence was its own fault.
[[noreturn]] void stay_connected(int ready) {
  const ControlTimes times{.heartbeat = milliseconds(50), .lease = std::chrono::seconds(2)};
  auto hub = make_hub(times);
  auto link = make_link(*hub, 1, times);
  if (!hub->accept(2, kLong).ok() || ::write(ready, "r", 1) != 1) ::_exit(2);
  const Deadline deadline = Deadline::after(std::chrono::seconds(4));
  bool connected = true;
  while (connected && !deadline.expired())
    connected = hub->next(milliseconds(20)).status().code() == Code::kDeadlineExceeded &&
                link->next(milliseconds(20)).status().code() == Code::kDeadlineExceeded;
  ::_exit(connected ? 0 : 1);
}

TEST(Control, APauseOfThisProcessIsNoLossOfItsPeers) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) stay_connected(ready[1]);
  char byte;
  EXPECT_EQ(::read(ready[0], &byte, 1), 1);
  ::kill(child, SIGSTOP);
  std::this_thread::sleep_for(milliseconds(2700));
  ::kill(child, SIGCONT);
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST(Control, LinkSeesALeaderThatIsGone) {
  auto hub = make_hub();
  auto link = make_link(*hub, 1);
  ASSERT_TRUE(hub->accept(2, kLong).ok());
  hub.reset();
  const Status status = link->next(kLong).status();
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("leader at 127.0.0.1"));
  EXPECT_EQ(link->send(FrameType::result, "x").code(), Code::kUnavailable);
}

TEST(Control, LastFramesArriveBeforeTheLoss) {
  auto hub = make_hub();
  auto link = make_link(*hub, 1);
  ASSERT_TRUE(hub->accept(2, kLong).ok());
  ASSERT_TRUE(link->send(FrameType::error, "out of memory").ok());
  link.reset();
  Result<Frame> error = hub->next(kLong);
  ASSERT_TRUE(error.ok()) << error.status().to_string();
  EXPECT_EQ(error->type, FrameType::error);
  EXPECT_EQ(error->payload, "out of memory");
  EXPECT_EQ(hub->next(kLong).status().code(), Code::kUnavailable);
}

TEST(Control, ShutdownReachesRanksOfALeaderThatLeaves) {
  auto hub = make_hub();
  auto one = make_link(*hub, 1), two = make_link(*hub, 2);
  ASSERT_TRUE(hub->accept(3, kLong).ok());
  ASSERT_TRUE(hub->broadcast(FrameType::shutdown, "").ok());
  hub.reset();
  for (ControlLink* link : {one.get(), two.get()}) {
    Result<Frame> frame = link->next(kLong);
    ASSERT_TRUE(frame.ok()) << frame.status().to_string();
    EXPECT_EQ(frame->type, FrameType::shutdown);
  }
}

TEST(Control, WrongSecretIsRefused) {
  auto hub = make_hub();
  const std::string address = hub->address().substr(0, hub->address().find('/')) + "/0123";
  const Status status =
      ControlLink::connect(address, 1, "x", kQuick, std::chrono::seconds(5)).status();
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("secret"));
  EXPECT_EQ(hub->peers().size(), 1u);
}

TEST(Control, SecondConnectionOfARankIsRefused) {
  auto hub = make_hub();
  auto link = make_link(*hub, 1);
  const Status status =
      ControlLink::connect(hub->address(), 1, "x", kQuick, std::chrono::seconds(5)).status();
  EXPECT_THAT(status.message(), HasSubstr("rank 1 is here already"));
  ASSERT_TRUE(hub->accept(2, kLong).ok());
  ASSERT_TRUE(link->send(FrameType::result, "still here").ok());
  EXPECT_EQ(hub->next(kLong)->payload, "still here");
}

TEST(Control, RankOutsideTheReplicaIsNamed) {
  auto hub = make_hub();
  auto one = make_link(*hub, 1), seven = make_link(*hub, 7);
  const Status status = hub->accept(2, kLong);
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("rank 7"));
}

TEST(Control, BadAddressesAreErrors) {
  for (const char* address :
       {"", "host", "host:1", "host:/s", "host:0/s", "host:99999/s", "host:12x/s", ":12/s"})
    EXPECT_EQ(ControlLink::connect(address, 1, "x", kQuick, milliseconds(100)).status().code(),
              Code::kInvalidArgument)
        << address;
  EXPECT_EQ(ControlHub::listen("no such host.invalid", kQuick).status().code(), Code::kNotFound);
  EXPECT_EQ(ControlHub::listen("192.0.2.1", kQuick).status().code(), Code::kUnavailable);
}

TEST(Control, E02ConnectGivesUpAtTheDeadlineAndPointsAtLoopback) {
  std::string address;
  {
    auto hub = make_hub();
    address = hub->address();
  }
  const Status status = ControlLink::connect(address, 1, "x", kQuick, milliseconds(200)).status();
  EXPECT_EQ(status.code(), Code::kDeadlineExceeded);
  EXPECT_THAT(status.message(), HasSubstr("cannot connect to 127.0.0.1"));
  EXPECT_THAT(status.message(), HasSubstr("from host x; that is a loopback address"));
}

TEST(Control, StrangersDoNotDisturb) {
  auto hub = make_hub();
  auto link = make_link(*hub, 1);
  const std::string host = host_of(hub->address());
  const int port = port_of(hub->address());
  // More silent connections than may be pending, and some that talk nonsense of every kind.
  std::vector<FileDescriptor> strangers;
  const std::string nonsense[] = {"GET / HTTP/1.1\r\n\r\n", std::string(5000, '\xff'),
                                  std::string("\4\0\0\0\1\0\0\0abcd", 12),
                                  std::string("\0\0\0\0\3\0\0\0", 8), std::string(3, '\0')};
  for (int i = 0; i < 100; i++) {
    Result<FileDescriptor> stranger = connect_tcp(host, port, Deadline::after(kLong));
    ASSERT_TRUE(stranger.ok());
    const std::string& text = nonsense[i % 5];
    if (i % 2) ::send(stranger->get(), text.data(), text.size(), MSG_NOSIGNAL);
    strangers.push_back(std::move(*stranger));
  }
  auto two = make_link(*hub, 2);
  ASSERT_TRUE(hub->accept(3, kLong).ok());
  ASSERT_TRUE(hub->broadcast(FrameType::plan, "work").ok());
  EXPECT_EQ(link->next(kLong)->payload, "work");
  EXPECT_EQ(two->next(kLong)->payload, "work");
  ASSERT_TRUE(two->send(FrameType::result, "done").ok());
  EXPECT_EQ(hub->next(kLong)->payload, "done");
}

TEST(Control, ARankThatSendsNonsenseIsLost) {
  auto hub = make_hub();
  const std::string secret = hub->address().substr(hub->address().find('/') + 1);
  auto socket = connect_tcp("127.0.0.1", port_of(hub->address()), Deadline::after(kLong)).value();
  std::string hello("\0\0\0\0\1\0\0\0\1\0\0\0\40\0\0\0", 16);  // rank 1, secret of 32 characters
  ASSERT_EQ(secret.size(), 32u);
  hello[0] = char(8 + secret.size());
  hello += secret;
  ASSERT_EQ(::send(socket.get(), hello.data(), hello.size(), 0), ssize_t(hello.size()));
  ASSERT_TRUE(hub->accept(2, kLong).ok());
  ::send(socket.get(), "\xff\xff\xff\xff\4\0\0\0", 8, MSG_NOSIGNAL);
  const Status status = hub->next(kLong).status();
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("rank 1"));
}

TEST(Control, SendingToARankThatDoesNotReadIsBounded) {
  const RankProcess child(1);
  auto hub = make_hub();
  child.connect(*hub);
  ASSERT_TRUE(hub->accept(2, kLong).ok());
  child.signal(SIGSTOP);
  const std::string part(16 << 20, 'x');
  Status status;
  for (int i = 0; i < 64 && status.ok(); i++) status = hub->broadcast(FrameType::plan, part);
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("rank 1"));
}

TEST(Control, ListeningOnAllInterfacesGivesAReachableAddress) {
  auto hub = ControlHub::listen("", kQuick).value();
  EXPECT_NE(host_of(hub->address()), "0.0.0.0");
  auto link = make_link(*hub, 1);
  EXPECT_TRUE(hub->accept(2, kLong).ok());
}

}  // namespace
}  // namespace cohort
