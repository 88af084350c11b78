// SPDX-License-Identifier: Apache-2.0
#include "coordinator/session_server.h"

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "base/log.h"
#include "comm/wire/replica.grpc.pb.h"

namespace cohort {
namespace {

using replica::v1::CoordinatorMessage;
using replica::v1::LeaderMessage;
using Stream = grpc::ServerReaderWriter<CoordinatorMessage, LeaderMessage>;

constexpr int kKeepaliveMs = 1000, kKeepaliveTimeoutMs = 2000;
constexpr int kMaxMessageBytes = 32 << 20;
// A leader that reads so slowly is as good as gone.
constexpr size_t kMaxQueuedMessages = 100'000;
constexpr auto kRejectGrace = std::chrono::seconds(1);

class StreamLink : public SessionLink {
 public:
  explicit StreamLink(grpc::ServerContext& call) : call_(&call) {}

  void send(CoordinatorMessage message) override {
    const std::lock_guard lock(mutex_);
    if (ended_ || rejecting_) return;
    queue_.push_back(std::move(message));
    if (queue_.size() > kMaxQueuedMessages && call_) call_->TryCancel();
    changed_.notify_all();
  }

  void close() override {
    const std::lock_guard lock(mutex_);
    if (call_) call_->TryCancel();
  }

  void reject(const std::string& reason) override {
    CoordinatorMessage message;
    message.mutable_reject()->set_reason(reason);
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(message));
    rejecting_ = true;
    changed_.notify_all();
  }

  // The writer's thread: until end().
  void write_all(Stream& stream) {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return ended_ || rejecting_ || !queue_.empty(); });
      if (ended_) return;
      if (queue_.empty()) {  // what told the leader to leave is written: give it time to
        if (!changed_.wait_for(lock, kRejectGrace, [&] { return ended_; })) call_->TryCancel();
        return;
      }
      const CoordinatorMessage message = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      const bool written = stream.Write(message);
      lock.lock();
      if (!written) return;
    }
  }

  // The stream is over; the call must not be touched any more.
  void end() {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    call_ = nullptr;
    queue_.clear();
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  grpc::ServerContext* call_;  // this and all below guarded by mutex_
  std::deque<CoordinatorMessage> queue_;
  bool ended_ = false, rejecting_ = false;
};

class ReplicaService final : public replica::v1::Replica::Service {
 public:
  explicit ReplicaService(SessionEvents& events) : events_(events) {}

  grpc::Status Session(grpc::ServerContext* call, Stream* stream) override {
    const uint64_t session = next_session_.fetch_add(1);
    const auto link = std::make_shared<StreamLink>(*call);
    events_.opened(session, link);
    std::thread writer([&] { link->write_all(*stream); });
    for (LeaderMessage message; stream->Read(&message);) {
      events_.received(session, std::move(message));
      message.Clear();
    }
    link->end();
    call->TryCancel();  // unblocks a write that the leader does not read
    writer.join();
    events_.closed(session);
    return grpc::Status::OK;
  }

 private:
  SessionEvents& events_;
  std::atomic<uint64_t> next_session_{1};
};

class GrpcSessionServer final : public SessionServer {
 public:
  explicit GrpcSessionServer(SessionEvents& events) : service_(events) {}
  ~GrpcSessionServer() override { stop(); }

  Status start(const std::string& address) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(&service_);
    builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 200);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    server_ = builder.BuildAndStart();
    if (!server_ || port_ == 0)
      return unavailable(concat("cannot listen for leaders on ", address,
                                ": choose another address with --session"));
    return {};
  }

  int port() const override { return port_; }
  void stop() override {
    // A deadline in the past: open streams are cancelled at once.
    if (server_) server_->Shutdown(std::chrono::system_clock::now());
    server_.reset();
  }

 private:
  ReplicaService service_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace

Result<std::unique_ptr<SessionServer>> SessionServer::start(const std::string& address,
                                                            SessionEvents& events) {
  auto server = std::make_unique<GrpcSessionServer>(events);
  COHORT_RETURN_IF_ERROR(server->start(address));
  return std::unique_ptr<SessionServer>(std::move(server));
}

}  // namespace cohort
