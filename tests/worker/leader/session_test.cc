// SPDX-License-Identifier: Apache-2.0
// The session against a coordinator that is played by the test, over a real connection.
#include "worker/leader/session.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "comm/wire/replica.grpc.pb.h"
#include "fake_executor.h"

namespace cohort {
namespace {

using namespace std::chrono_literals;
using replica::v1::CoordinatorMessage;
using replica::v1::LeaderMessage;

constexpr StepLimits kLimits{
    .max_slots = 4, .max_rows = 32, .max_context = 256, .blocks = 64, .in_flight = 2};

// Takes one stream at a time and does nothing by itself.
class FakeCoordinator final : public replica::v1::Replica::Service {
 public:
  explicit FakeCoordinator(int port = 0) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(concat("127.0.0.1:", port), grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~FakeCoordinator() override { server_->Shutdown(std::chrono::system_clock::now()); }

  grpc::Status Session(grpc::ServerContext*,
                       grpc::ServerReaderWriter<CoordinatorMessage, LeaderMessage>* s) override {
    {
      const std::lock_guard lock(mutex_);
      stream_ = s;
      received_.clear();
    }
    for (LeaderMessage message; s->Read(&message);) {
      const std::lock_guard lock(mutex_);
      received_.push_back(message);
      changed_.notify_all();
    }
    const std::lock_guard lock(mutex_);
    stream_ = nullptr;
    ++ended_;
    changed_.notify_all();
    return grpc::Status::OK;
  }

  int port() const { return port_; }
  void send(const CoordinatorMessage& message) {
    const std::lock_guard lock(mutex_);
    ASSERT_NE(stream_, nullptr);
    ASSERT_TRUE(stream_->Write(message));
  }
  // The next message of this kind on the stream; others before it are dropped.
  std::optional<LeaderMessage> next(LeaderMessage::MessageCase kind, Duration timeout = 5s) {
    const Deadline deadline = Deadline::after(timeout);
    std::unique_lock lock(mutex_);
    for (;;) {
      if (!changed_.wait_until(lock, deadline.at(), [&] { return !received_.empty(); }))
        return std::nullopt;
      LeaderMessage message = std::move(received_.front());
      received_.pop_front();
      if (message.message_case() == kind) return message;
    }
  }
  bool wait_for_end(int count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, 5s, [&] { return ended_ >= count; });
  }

 private:
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
  std::mutex mutex_;
  std::condition_variable changed_;
  grpc::ServerReaderWriter<CoordinatorMessage, LeaderMessage>* stream_ = nullptr;
  std::deque<LeaderMessage> received_;
  int ended_ = 0;
};

// Answers one step each time it is allowed to, so that tests decide how far generation gets.
class PacedExecutor : public FakeExecutor {
 public:
  using FakeExecutor::FakeExecutor;
  Result<StepResult> next_result() override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return allowed_ > 0; });
    --allowed_;
    return FakeExecutor::next_result();
  }
  void allow(int steps) {
    const std::lock_guard lock(mutex_);
    allowed_ += steps;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int allowed_ = 0;
};

CoordinatorMessage welcome(std::vector<std::array<uint32_t, 3>> resume = {}) {
  CoordinatorMessage message;
  message.mutable_welcome()->set_coordinator_epoch(1);
  for (const auto& [request, attempt, index] : resume) {
    auto* ack = message.mutable_welcome()->add_resume();
    ack->set_request(request);
    ack->set_attempt(attempt);
    ack->set_next_index(index);
  }
  return message;
}

CoordinatorMessage submit(uint64_t request, uint64_t number, int max_tokens, uint32_t attempt = 1) {
  CoordinatorMessage message;
  auto* s = message.mutable_submit();
  s->set_request(request);
  s->set_attempt(attempt);
  s->set_sequence_number(number);
  for (int i = 0; i < 5; ++i) s->add_prompt(int32_t(100 + i));
  s->mutable_sampling()->set_max_tokens(max_tokens);
  s->mutable_sampling()->set_repetition_penalty(1);
  return message;
}

std::vector<int32_t> expected_output(int tokens) {
  std::vector<int32_t> list{100, 101, 102, 103, 104};
  for (int i = 0; i < tokens; ++i) list.push_back(fake_next_token(list, 5, {}));
  return {list.begin() + 5, list.end()};
}

class SessionTest : public testing::Test {
 protected:
  void SetUp() override { connect({}); }
  void connect(SessionOptions options) {
    options.coordinator = concat("127.0.0.1:", coordinator_->port());
    ReplicaDescription description;
    description.name = "replica-0";
    description.epoch = 77;
    description.limits = kLimits;
    session_ = Session::create(description, options, [] {
      RankState rank;
      rank.host = "here";
      rank.where = "idle";
      return std::vector<RankState>{rank};
    });
    BatchLoopOptions loop_options;
    loop_options.epoch = 77;
    loop_ = std::make_unique<BatchLoop>(executor_, *session_, std::move(loop_options));
    loop_->start();
    session_->start(*loop_);
  }
  void TearDown() override {
    loop_->stop();
    executor_.allow(1 << 20);
    EXPECT_TRUE(loop_->wait().ok());
    session_->stop();
  }
  void greet(std::vector<std::array<uint32_t, 3>> resume = {}) {
    const auto hello = coordinator_->next(LeaderMessage::kHello);
    ASSERT_TRUE(hello);
    hello_ = hello->hello();
    coordinator_->send(welcome(std::move(resume)));
  }
  // Events of a request until it has so many tokens or has ended; indexes must follow each other.
  std::vector<int32_t> tokens(uint64_t request, size_t count, uint32_t first = 0) {
    std::vector<int32_t> list;
    while (list.size() < count) {
      const auto message = coordinator_->next(LeaderMessage::kEvents);
      if (!message) break;
      EXPECT_EQ(message->events().epoch(), 77u);
      for (const auto& event : message->events().events()) {
        if (event.request() != request) continue;
        EXPECT_EQ(event.index(), first + list.size());
        for (const auto& token : event.tokens()) list.push_back(token.id());
        finish_ = event.finish();
      }
    }
    return list;
  }
  void restart_coordinator() {
    const int port = coordinator_->port();
    coordinator_.reset();
    coordinator_ = std::make_unique<FakeCoordinator>(port);
  }

  std::unique_ptr<FakeCoordinator> coordinator_ = std::make_unique<FakeCoordinator>();
  PacedExecutor executor_{kLimits};
  std::unique_ptr<Session> session_;
  std::unique_ptr<BatchLoop> loop_;
  replica::v1::Hello hello_;
  replica::v1::FinishReason finish_ = replica::v1::FINISH_UNSPECIFIED;
};

TEST_F(SessionTest, GreetsServesAndReportsLoad) {
  greet();
  EXPECT_EQ(hello_.name(), "replica-0");
  EXPECT_EQ(hello_.epoch(), 77u);
  EXPECT_EQ(hello_.kv_blocks(), 64);
  EXPECT_EQ(hello_.ranks_size(), 1);
  coordinator_->send(submit(9, 4, 6));
  for (int i = 0; i < 100; ++i) {  // the steps stand still: the request must show in a load
    const auto load = coordinator_->next(LeaderMessage::kLoad);
    ASSERT_TRUE(load);
    if (load->load().last_submit() != 4) continue;
    EXPECT_EQ(load->load().running() + load->load().queued(), 1);
    EXPECT_EQ(load->load().ranks(0).where(), "idle");
    break;
  }
  executor_.allow(1 << 20);
  EXPECT_EQ(tokens(9, 6), expected_output(6));
  EXPECT_EQ(finish_, replica::v1::FINISH_LENGTH);
  EXPECT_TRUE(session_->connected());
}

TEST_F(SessionTest, GenerationGoesOnWithoutTheCoordinatorAndIsSentAgain) {
  greet();
  coordinator_->send(submit(9, 1, 40));
  executor_.allow(10);
  const auto first = tokens(9, 8);
  EXPECT_GE(first.size(), 8u);
  restart_coordinator();
  executor_.allow(10);
  // It took five of them before its connection broke.
  greet({{9, 1, 5}});
  ASSERT_EQ(hello_.live_size(), 1);
  EXPECT_EQ(hello_.live(0).request(), 9u);
  EXPECT_GE(hello_.live(0).next_index(), 8u);
  executor_.allow(1 << 20);
  const auto expected = expected_output(40);
  EXPECT_EQ(tokens(9, 35, 5), std::vector<int32_t>(expected.begin() + 5, expected.end()));
  EXPECT_EQ(finish_, replica::v1::FINISH_LENGTH);
}

TEST_F(SessionTest, ANewCoordinatorCancelsWhatItDoesNotKnow) {
  greet();
  coordinator_->send(submit(9, 1, 200));
  executor_.allow(10);
  tokens(9, 5);
  restart_coordinator();
  greet();
  EXPECT_EQ(hello_.live_size(), 1);
  for (int i = 0;; ++i) {
    ASSERT_LT(i, 100) << "steps of the 200 it would take undisturbed";
    executor_.allow(1);
    const auto load = coordinator_->next(LeaderMessage::kLoad);
    ASSERT_TRUE(load);
    if (load->load().running() == 0) break;
  }
}

TEST_F(SessionTest, E14_CancelAndNewerAttemptsEndTheOld) {
  greet();
  executor_.allow(4);
  coordinator_->send(submit(9, 1, 200));
  tokens(9, 2);
  coordinator_->send(submit(9, 2, 3, 2));
  CoordinatorMessage cancel;
  cancel.mutable_cancel()->set_request(9);
  cancel.mutable_cancel()->set_attempt(1);
  coordinator_->send(cancel);
  executor_.allow(1 << 20);
  std::vector<int32_t> list;
  while (list.size() < 3) {
    const auto message = coordinator_->next(LeaderMessage::kEvents);
    ASSERT_TRUE(message);
    for (const auto& event : message->events().events())
      if (event.attempt() == 2)
        for (const auto& token : event.tokens()) list.push_back(token.id());
  }
  EXPECT_EQ(list, expected_output(3));
}

TEST_F(SessionTest, RefusalsSayWhoseFaultItIs) {
  greet();
  coordinator_->send(submit(9, 1, 0));
  auto message = coordinator_->next(LeaderMessage::kEvents);
  ASSERT_TRUE(message);
  EXPECT_EQ(message->events().events(0).finish(), replica::v1::FINISH_ERROR);
  EXPECT_TRUE(message->events().events(0).invalid_request());
  EXPECT_FALSE(message->events().events(0).leaving());
  CoordinatorMessage drain;
  drain.mutable_drain();
  coordinator_->send(drain);
  coordinator_->send(submit(10, 2, 5));
  message = coordinator_->next(LeaderMessage::kEvents);
  ASSERT_TRUE(message);
  EXPECT_EQ(message->events().events(0).request(), 10u);
  EXPECT_FALSE(message->events().events(0).invalid_request());
  EXPECT_TRUE(message->events().events(0).leaving());
  for (int i = 0; i < 100; ++i) {
    const auto load = coordinator_->next(LeaderMessage::kLoad);
    ASSERT_TRUE(load);
    if (load->load().draining()) return;
  }
  ADD_FAILURE() << "no load says that the replica drains";
}

TEST_F(SessionTest, ARejectedReplicaSaysSoAndDoesNotComeBack) {
  ASSERT_TRUE(coordinator_->next(LeaderMessage::kHello));
  CoordinatorMessage reject;
  reject.mutable_reject()->set_reason("another model");
  coordinator_->send(reject);
  ASSERT_TRUE(coordinator_->wait_for_end(1));
  EXPECT_NE(session_->rejected().message().find("another model"), std::string::npos);
  EXPECT_FALSE(coordinator_->next(LeaderMessage::kHello, 500ms));
}

TEST_F(SessionTest, StopSaysGoodbyeQuickly) {
  greet();
  ASSERT_TRUE(coordinator_->next(LeaderMessage::kLoad));
  const auto start = std::chrono::steady_clock::now();
  session_->stop();
  EXPECT_LT(std::chrono::steady_clock::now() - start, 900ms);
  bool draining = false;
  while (const auto load = coordinator_->next(LeaderMessage::kLoad, 100ms))
    draining = load->load().draining();
  EXPECT_TRUE(draining);
}

class ExpertsSessionTest : public SessionTest {
 protected:
  void SetUp() override {
    SessionOptions options;
    options.load_interval = 10ms;
    options.expert_interval = 200ms;
    options.experts = [] {
      return ExpertReport{.layers = {{1, {4, 2}}}, .imbalance = 1.5, .copies = 0};
    };
    connect(options);
  }
};

TEST_F(ExpertsSessionTest, ExpertsAreToldNowAndThen) {
  greet();
  int with = 0, without = 0;
  while (with < 3) {
    const auto load = coordinator_->next(LeaderMessage::kLoad);
    ASSERT_TRUE(load);
    with += load->load().has_experts();
    without += !load->load().has_experts();
    if (load->load().has_experts()) {
      EXPECT_EQ(load->load().experts().layers(0).tokens(0), 4u);
    }
  }
  EXPECT_GE(without, 2);
}

class OrphanTest : public SessionTest {
 protected:
  void SetUp() override {
    SessionOptions options;
    options.orphan_limit = 300ms;
    connect(options);
  }
};

TEST_F(OrphanTest, AVanishedCoordinatorLosesItsSequences) {
  greet();
  coordinator_->send(submit(9, 1, 200));
  executor_.allow(3);
  tokens(9, 1);
  coordinator_.reset();
  executor_.allow(1 << 20);
  const Deadline deadline = Deadline::after(5s);
  while (loop_->load().scheduler.running > 0) {
    ASSERT_FALSE(deadline.expired());
    std::this_thread::sleep_for(10ms);
  }
  coordinator_ = std::make_unique<FakeCoordinator>();
}

}  // namespace
}  // namespace cohort
