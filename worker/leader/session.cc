// SPDX-License-Identifier: Apache-2.0
#include "worker/leader/session.h"

#include <grpcpp/grpcpp.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>

#include "base/log.h"
#include "comm/wire/replica.grpc.pb.h"
#include "worker/leader/event_log.h"
#include "worker/leader/session_messages.h"

namespace cohort {
namespace {

using replica::v1::CoordinatorMessage;
using replica::v1::LeaderMessage;
using Stream = grpc::ClientReaderWriter<LeaderMessage, CoordinatorMessage>;

// A coordinator that hangs or whose host is gone is noticed after time + timeout.
constexpr int kKeepaliveMs = 1000, kKeepaliveTimeoutMs = 2000;
constexpr int kMaxMessageBytes = 32 << 20;
constexpr int64_t kTokensPerMessage = 16384;
// Ended attempts that were sent so long ago on a stream that stands have arrived.
constexpr Duration kArrived = std::chrono::seconds(30);

TimePoint now() { return std::chrono::steady_clock::now(); }

class GrpcSession final : public Session {
 public:
  GrpcSession(ReplicaDescription description, SessionOptions options,
              std::function<std::vector<RankState>()> ranks)
      : description_(std::move(description)),
        options_(std::move(options)),
        ranks_(std::move(ranks)),
        log_(options_.unacknowledged_tokens) {}
  ~GrpcSession() override { stop(); }

  void start(BatchLoop& loop) override {
    loop_ = &loop;
    disconnected_at_ = now();
    thread_ = std::thread([this] { run(); });
  }
  void stop() override;
  void publish(std::vector<SequenceEvent> events) override;
  bool connected() const override {
    const std::lock_guard lock(mutex_);
    return welcome_;
  }
  Status rejected() const override {
    const std::lock_guard lock(mutex_);
    return rejected_;
  }

 private:
  // The connection's life; run() is the reading thread's.
  void run();
  Status converse(replica::v1::Replica::Stub& stub);
  Status read(Stream& stream);
  void rest(Duration delay);
  LeaderMessage greeting();
  void drop_orphans();

  // Commands, with mutex_ held.
  void take(const CoordinatorMessage& message);
  void take_welcome(const replica::v1::Welcome& welcome);
  void take_submit(const replica::v1::Submit& submit);
  void take_cancel(SequenceId id);

  // The writing thread's.
  void write(Stream& stream, grpc::ClientContext& call);
  std::optional<LeaderMessage> next_message(std::unique_lock<std::mutex>& lock);
  LeaderMessage load_message();
  bool load_is_due() const;
  Duration load_wait() const;

  const ReplicaDescription description_;
  const SessionOptions options_;
  const std::function<std::vector<RankState>()> ranks_;
  BatchLoop* loop_ = nullptr;
  TimePoint experts_due_{};  // the writing thread's
  std::thread thread_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  EventLog log_;  // this and all below guarded by mutex_
  grpc::ClientContext* call_ = nullptr;
  bool stopping_ = false, welcome_ = false, stream_over_ = true, draining_ = false;
  TimePoint connected_at_{}, disconnected_at_{}, load_sent_at_{};
  // Sequence numbers of submits that the loop has not counted yet, by its count.
  std::deque<std::pair<uint64_t, uint64_t>> uncounted_;
  uint64_t submits_ = 0, last_submit_ = 0;
  LoadReport reported_;
  Status rejected_;
};

void GrpcSession::stop() {
  {
    std::unique_lock lock(mutex_);
    if (!stopping_) {
      stopping_ = draining_ = true;
      changed_.notify_all();
      // The writer says goodbye and half-closes; a coordinator that does not answer is left.
      changed_.wait_for(lock, std::chrono::milliseconds(500), [this] { return stream_over_; });
      if (call_ != nullptr) call_->TryCancel();
    }
  }
  if (thread_.joinable()) thread_.join();
}

void GrpcSession::publish(std::vector<SequenceEvent> events) {
  const std::lock_guard lock(mutex_);
  for (const SequenceEvent& event : events) {
    if (log_.append(event)) continue;
    log_error(concat("request ", event.id.request, " ends: the coordinator has not acknowledged ",
                     options_.unacknowledged_tokens, " tokens"));
    (void)loop_->cancel(event.id);  // fails only where the loop has ended
  }
  changed_.notify_all();
}

void GrpcSession::run() {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  // The delays are ours: the channel's own grow to minutes.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  const auto channel = grpc::CreateCustomChannel(options_.coordinator,
                                                 grpc::InsecureChannelCredentials(), arguments);
  const auto stub = replica::v1::Replica::NewStub(channel);
  Duration delay = options_.first_retry;
  for (std::unique_lock lock(mutex_); !stopping_ && rejected_.ok();) {
    lock.unlock();
    const Status status = converse(*stub);
    lock.lock();
    const bool was_welcome = std::exchange(welcome_, false);
    if (was_welcome) {
      disconnected_at_ = now();
      delay = options_.first_retry;
    }
    if (stopping_ || !rejected_.ok()) break;
    // A session that ends may be the coordinator going in good order, just before us.
    if (was_welcome || delay == options_.first_retry)
      log(was_welcome ? LogLevel::info : LogLevel::warning,
          concat("no session with the coordinator at ", options_.coordinator, " (",
                 status.message(), "): trying again"));
    lock.unlock();
    rest(delay);
    drop_orphans();
    lock.lock();
    delay = std::min(2 * delay, options_.longest_retry);
  }
}

// One stream, from greeting to end.
Status GrpcSession::converse(replica::v1::Replica::Stub& stub) {
  grpc::ClientContext call;
  call.set_wait_for_ready(false);
  std::unique_ptr<Stream> stream;
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return cancelled("the replica is shutting down");
    call_ = &call;
  }
  stream = stub.Session(&call);
  Status status = unavailable("the connection was refused or lost");
  if (stream->Write(greeting())) {
    {
      const std::lock_guard lock(mutex_);
      connected_at_ = now();
      stream_over_ = false;
    }
    std::thread writer([&] { write(*stream, call); });
    status = read(*stream);
    {
      const std::lock_guard lock(mutex_);
      stream_over_ = true;
      changed_.notify_all();
    }
    call.TryCancel();  // ends a write that nobody reads
    writer.join();
  }
  const grpc::Status end = stream->Finish();
  const std::lock_guard lock(mutex_);
  call_ = nullptr;
  if (!rejected_.ok()) return rejected_;
  return end.error_message().empty() ? status : unavailable(end.error_message());
}

LeaderMessage GrpcSession::greeting() {
  LeaderMessage message;
  *message.mutable_hello() = to_wire(description_);
  for (const RankState& rank : ranks_()) *message.mutable_hello()->add_ranks() = to_wire(rank);
  const std::lock_guard lock(mutex_);
  for (auto& live : log_.live()) *message.mutable_hello()->add_live() = std::move(live);
  uncounted_.clear();  // numbers are the stream's
  last_submit_ = 0;
  return message;
}

Status GrpcSession::read(Stream& stream) {
  CoordinatorMessage message;
  while (stream.Read(&message)) {
    const std::lock_guard lock(mutex_);
    take(message);
    changed_.notify_all();
    if (!rejected_.ok()) return rejected_;
  }
  return unavailable("the stream ended");
}

void GrpcSession::rest(Duration delay) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, delay, [this] { return stopping_; });
}

// Nobody will come for these: their coordinator is gone for good, or has new ones in their place.
void GrpcSession::drop_orphans() {
  const std::lock_guard lock(mutex_);
  if (log_.empty() || now() - disconnected_at_ < options_.orphan_limit) return;
  const auto ids = log_.ids();
  log_warning(concat("the coordinator has been away for ", seconds(options_.orphan_limit),
                     " s: its ", ids.size(), " sequences are cancelled"));
  for (const SequenceId id : ids) take_cancel(id);
}

void GrpcSession::take(const CoordinatorMessage& message) {
  switch (message.message_case()) {
    case CoordinatorMessage::kWelcome:
      return take_welcome(message.welcome());
    case CoordinatorMessage::kSubmit:
      return take_submit(message.submit());
    case CoordinatorMessage::kCancel:
      return take_cancel({message.cancel().request(), message.cancel().attempt()});
    case CoordinatorMessage::kAck:
      return log_.acknowledge({message.ack().request(), message.ack().attempt()},
                              static_cast<int32_t>(message.ack().next_index()));
    case CoordinatorMessage::kDrain:
      log_info("draining: no new sequences are taken");
      draining_ = true;
      return;
    case CoordinatorMessage::kReject:
      rejected_ = failed_precondition("the coordinator turned this replica away: " +
                                      message.reject().reason());
      return;
    case CoordinatorMessage::MESSAGE_NOT_SET:
      return;
  }
}

void GrpcSession::take_welcome(const replica::v1::Welcome& welcome) {
  std::map<SequenceId, int32_t> from;
  for (const auto& ack : welcome.resume())
    from[{ack.request(), ack.attempt()}] = static_cast<int32_t>(ack.next_index());
  for (const SequenceId id : log_.resume(from)) (void)loop_->cancel(id);
  welcome_ = true;
  log_info(concat("connected to the coordinator at ", options_.coordinator, ", ", from.size(),
                  " sequences go on"));
}

void GrpcSession::take_submit(const replica::v1::Submit& submit) {
  SequenceRequest request = from_wire(submit);
  const SequenceId id = request.id;
  const int32_t next_index = submit.output_prefix_size();
  for (const SequenceId other : log_.others(id)) take_cancel(other);
  if (!log_.open(id, next_index)) return;  // the same message twice
  Status status =
      draining_ ? unavailable("the replica is draining") : loop_->submit(std::move(request));
  if (status.ok()) return uncounted_.push_back({++submits_, submit.sequence_number()});
  last_submit_ = std::max(last_submit_, submit.sequence_number());
  log_.append({.id = id,
               .index = next_index,
               .finish = FinishReason::error,
               .error = status.message(),
               .refused = status.code()});
}

// The coordinator wants nothing more of it, not even its end.
void GrpcSession::take_cancel(SequenceId id) {
  if (!log_.contains(id)) return;
  log_.forget(id);
  (void)loop_->cancel(id);  // fails only where the loop has ended
}

// Events as soon as there are any: while a message is written those of the next step gather.
void GrpcSession::write(Stream& stream, grpc::ClientContext& call) {
  for (std::unique_lock lock(mutex_); !stream_over_;) {
    auto message = next_message(lock);
    if (message) {
      lock.unlock();
      const bool written = stream.Write(*message);
      lock.lock();
      if (!written) break;
    } else if (stopping_) {
      lock.unlock();
      stream.Write(load_message());
      stream.WritesDone();
      return;
    } else if (!welcome_ && now() - connected_at_ > options_.welcome_timeout) {
      log_warning("the coordinator does not answer the greeting");
      break;
    }
  }
  call.TryCancel();
}

// What is to be sent now; nothing after a wait of at most a load interval.
std::optional<LeaderMessage> GrpcSession::next_message(std::unique_lock<std::mutex>& lock) {
  const auto ready = [this] {
    return stream_over_ || stopping_ || (welcome_ && (log_.has_unsent() || load_is_due()));
  };
  if (!ready()) changed_.wait_for(lock, load_wait(), ready);
  if (stream_over_ || !welcome_) return std::nullopt;
  if (log_.has_unsent()) {
    LeaderMessage message;
    message.mutable_events()->set_epoch(description_.epoch);
    for (auto& event : log_.take_unsent(kTokensPerMessage, now()))
      *message.mutable_events()->add_events() = std::move(event);
    log_.forget_ended(now() - kArrived);
    return message;
  }
  if (stopping_ || !load_is_due()) return std::nullopt;
  lock.unlock();
  LeaderMessage message = load_message();
  lock.lock();
  return message;
}

bool GrpcSession::load_is_due() const {
  const Duration age = now() - load_sent_at_;
  if (age >= options_.load_interval) return true;
  if (age < options_.least_load_interval) return false;
  const LoadReport load = loop_->load();
  return load.submits != reported_.submits ||
         load.scheduler.running != reported_.scheduler.running ||
         load.scheduler.waiting != reported_.scheduler.waiting;
}

// Events and commands wake the writer; the load that they change is sent a little later.
Duration GrpcSession::load_wait() const {
  const Duration age = now() - load_sent_at_;
  return age < options_.least_load_interval ? options_.least_load_interval - age
         : uncounted_.empty()               ? options_.load_interval
                                            : options_.least_load_interval;
}

// Called without the lock: the ranks' state is asked for.
LeaderMessage GrpcSession::load_message() {
  const std::vector<RankState> ranks = ranks_();
  ExpertReport experts;
  if (now() >= experts_due_) {
    experts = options_.experts();
    experts_due_ = now() + options_.expert_interval;
  }
  const std::lock_guard lock(mutex_);
  reported_ = loop_->load();
  // A load may claim to know only of submits that its numbers count.
  for (; !uncounted_.empty() && uncounted_.front().first <= reported_.submits;
       uncounted_.pop_front())
    last_submit_ = std::max(last_submit_, uncounted_.front().second);
  load_sent_at_ = now();
  LeaderMessage message;
  replica::v1::Load& load = *message.mutable_load();
  load = to_wire(reported_);
  load.set_epoch(description_.epoch);
  load.set_last_submit(last_submit_);
  load.set_draining(draining_);
  for (const RankState& rank : ranks) *load.add_ranks() = to_wire(rank);
  if (!experts.layers.empty()) *load.mutable_experts() = to_wire(experts);
  return message;
}

}  // namespace

std::unique_ptr<Session> Session::create(ReplicaDescription description, SessionOptions options,
                                         std::function<std::vector<RankState>()> ranks) {
  return std::make_unique<GrpcSession>(std::move(description), std::move(options),
                                       std::move(ranks));
}

}  // namespace cohort
