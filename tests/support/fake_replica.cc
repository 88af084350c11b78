// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fake_replica.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>

namespace cohort {

using namespace replica::v1;  // NOLINT: a test double of that protocol

int32_t FakeReplica::letter(const std::vector<int32_t>& prompt, int index) {
  uint32_t sum = 0;
  for (const int32_t id : prompt) sum = sum * 31 + static_cast<uint32_t>(id);
  return 'a' + static_cast<int32_t>((sum + static_cast<uint32_t>(index) * 7) % 26);
}

std::string FakeReplica::letters(const std::vector<int32_t>& prompt, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += static_cast<char>(letter(prompt, i));
  return out;
}

FakeReplica::FakeReplica(int port, FakeReplicaOptions options)
    : port_(port), options_(std::move(options)) {
  if (!options_.token) options_.token = letter;
  thread_ = std::thread([this] { run(); });
}

FakeReplica::~FakeReplica() { die(); }

void FakeReplica::die() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    if (call_) call_->TryCancel();
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void FakeReplica::hang() {
  const std::lock_guard lock(mutex_);
  hang_ = true;
}

void FakeReplica::lose_connection() {
  const std::lock_guard lock(mutex_);
  welcomed_ = false;
  if (call_) call_->TryCancel();
}

void FakeReplica::drain() {
  const std::lock_guard lock(mutex_);
  draining_ = true;
}

bool FakeReplica::wait_connected(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, limit, [&] { return welcomed_; });
}

int FakeReplica::active() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(
      std::count_if(live_.begin(), live_.end(), [](const auto& e) { return !e.second.finished; }));
}

std::vector<Submit> FakeReplica::submits() const {
  const std::lock_guard lock(mutex_);
  return submits_;
}

int FakeReplica::cancels() const {
  const std::lock_guard lock(mutex_);
  return cancels_;
}

std::string FakeReplica::reject_reason() const {
  const std::lock_guard lock(mutex_);
  return reject_reason_;
}

void FakeReplica::run() {
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (stop_ || !reject_reason_.empty()) return;
    }
    session();
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::milliseconds(20), [&] { return stop_; });
  }
}

void FakeReplica::session() {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  const auto channel = grpc::CreateCustomChannel("127.0.0.1:" + std::to_string(port_),
                                                 grpc::InsecureChannelCredentials(), arguments);
  const auto stub = Replica::NewStub(channel);
  grpc::ClientContext call;
  call.set_wait_for_ready(true);
  call.set_deadline(std::chrono::system_clock::now() + std::chrono::minutes(5));
  {
    // Known before it is open: where nobody listens any more, opening ends only by a cancellation.
    const std::lock_guard lock(mutex_);
    call_ = &call;
    stream_ended_ = false;
    if (stop_) call.TryCancel();
  }
  const auto stream = stub->Session(&call);
  stream->Write(hello());
  std::thread reader([&] { read_all(*stream); });
  while (send_step(*stream)) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, options_.token_interval, [&] { return stop_ || stream_ended_; });
  }
  call.TryCancel();
  reader.join();
  {
    const std::lock_guard lock(mutex_);
    call_ = nullptr;
    welcomed_ = false;
  }
  (void)stream->Finish();
}

void FakeReplica::read_all(Stream& stream) {
  for (CoordinatorMessage message; stream.Read(&message);) take(message);
  const std::lock_guard lock(mutex_);
  stream_ended_ = true;
  changed_.notify_all();
}

void FakeReplica::take(const CoordinatorMessage& message) {
  const std::lock_guard lock(mutex_);
  if (hang_) return;
  if (message.has_welcome()) {
    std::map<uint64_t, Live> kept;
    for (const Ack& ack : message.welcome().resume()) {
      const auto at = live_.find(ack.request());
      if (at == live_.end()) continue;
      at->second.sent = ack.next_index();
      at->second.finish_sent = false;
      kept.insert(*at);
    }
    live_ = std::move(kept);
    welcomed_ = true;
  } else if (message.has_submit()) {
    const Submit& submit = message.submit();
    submits_.push_back(submit);
    last_submit_ = submit.sequence_number();
    Live live{.submit = submit, .tokens = {}};
    live.tokens.assign(submit.output_prefix().begin(), submit.output_prefix().end());
    live.sent = live.tokens.size();
    live_[submit.request()] = std::move(live);
  } else if (message.has_cancel()) {
    const auto at = live_.find(message.cancel().request());
    if (at != live_.end() && at->second.submit.attempt() == message.cancel().attempt()) {
      at->second.finished = at->second.cancelled = true;
      ++cancels_;
    }
  } else if (message.has_ack()) {
    const auto at = live_.find(message.ack().request());
    if (at != live_.end()) {
      at->second.acknowledged = message.ack().next_index();
      if (at->second.finish_sent && at->second.acknowledged >= at->second.tokens.size())
        live_.erase(at);
    }
  } else if (message.has_reject()) {
    reject_reason_ = message.reject().reason();
    stop_ = true;
  } else if (message.has_drain()) {
    draining_ = true;
  }
  changed_.notify_all();
}

LeaderMessage FakeReplica::hello() const {
  const std::lock_guard lock(mutex_);
  LeaderMessage message;
  Hello& hello = *message.mutable_hello();
  hello.set_name(options_.name);
  hello.set_epoch(options_.epoch);
  hello.set_model_fingerprint(options_.fingerprint);
  hello.set_model_path("fake.gguf");
  hello.mutable_layout()->set_tp(2);
  hello.mutable_layout()->set_pp(1);
  hello.set_max_context(options_.max_context);
  hello.set_max_batch(options_.max_batch);
  hello.set_max_rows(256);
  hello.set_kv_blocks(1000);
  for (const auto& [id, live] : live_) {
    LiveRequest& entry = *hello.add_live();
    entry.set_request(id);
    entry.set_attempt(live.submit.attempt());
    entry.set_next_index(static_cast<uint32_t>(live.tokens.size()));
  }
  return message;
}

LeaderMessage FakeReplica::load() const {
  LeaderMessage message;
  Load& load = *message.mutable_load();
  load.set_epoch(options_.epoch);
  load.set_last_submit(last_submit_);
  load.set_running(static_cast<int>(live_.size()));
  load.set_blocks_total(1000);
  load.set_blocks_free(1000 - static_cast<int64_t>(live_.size()));
  load.set_step_seconds(0.001);
  load.set_token_seconds(0.0001);
  load.set_draining(draining_);
  for (int i = 0; i < 2; ++i) {
    RankInfo& rank = *load.add_ranks();
    rank.set_rank(i);
    rank.set_host("fakehost");
    rank.set_pid(100 + i);
    rank.set_tp(i);
    rank.set_device("fake");
    rank.set_last_progress_ms(i == 1 ? options_.stuck_rank_ms : 0);
    rank.set_where("all_reduce");
    rank.set_compute_seconds(20 + i);
    rank.set_communication_seconds(5);
    rank.set_hidden_communication_seconds(3.5);
    rank.set_idle_seconds(1.5);
    rank.set_bytes_sent(1 << 20);
  }
  replica::v1::Experts& experts = *load.mutable_experts();
  experts.set_imbalance(1.25);
  experts.set_copies(3);
  replica::v1::ExpertLayer& layer = *experts.add_layers();
  layer.set_layer(2);
  for (const uint64_t tokens : {7, 0, 11}) layer.add_tokens(tokens);
  return message;
}

// One more token of a sequence.
void FakeReplica::produce(Live& live) {
  if (live.finished) return;
  const Sampling& sampling = live.submit.sampling();
  const std::vector<int32_t> prompt(live.submit.prompt().begin(), live.submit.prompt().end());
  const int32_t token = options_.token(prompt, static_cast<int>(live.tokens.size()));
  live.tokens.push_back(token);
  const auto& ends = sampling.end_tokens();
  live.finished = std::find(ends.begin(), ends.end(), token) != ends.end() ||
                  static_cast<int>(live.tokens.size()) >= sampling.max_tokens();
}

// Produces a token of each sequence and returns what is to be sent.
std::vector<TokenEvent> FakeReplica::step() {
  std::vector<TokenEvent> events;
  for (auto at = live_.begin(); at != live_.end();) {
    Live& live = at->second;
    if (options_.fail_with.empty()) produce(live);
    TokenEvent event;
    event.set_request(at->first);
    event.set_attempt(live.submit.attempt());
    event.set_index(static_cast<uint32_t>(live.sent));
    if (live.cancelled || !options_.fail_with.empty()) {
      event.set_finish(live.cancelled ? FINISH_CANCELLED : FINISH_ERROR);
      event.set_error(options_.fail_with);
      event.set_leaving(options_.leaving);
      event.set_invalid_request(options_.invalid_request);
      events.push_back(event);
      at = live_.erase(at);
      continue;
    }
    for (; live.sent < live.tokens.size(); ++live.sent) {
      Token& token = *event.add_tokens();
      token.set_id(live.tokens[live.sent]);
      token.set_logprob(-0.5F);
      for (int i = 0; i < live.submit.sampling().logprobs(); ++i) {
        Logprob& top = *token.add_top();
        top.set_token('A' + i);
        top.set_logprob(-1.0F - static_cast<float>(i));
      }
    }
    const bool finish = live.finished && !live.finish_sent;
    if (finish) {
      const auto& ends = live.submit.sampling().end_tokens();
      const bool stop = std::find(ends.begin(), ends.end(), live.tokens.back()) != ends.end();
      event.set_finish(stop ? FINISH_STOP : FINISH_LENGTH);
      live.finish_sent = true;
    }
    if (event.tokens_size() > 0 || finish) events.push_back(event);
    ++at;
  }
  return events;
}

// False when the session is over.
bool FakeReplica::send_step(Stream& stream) {
  LeaderMessage events, report;
  {
    const std::lock_guard lock(mutex_);
    if (stop_ || stream_ended_) return false;
    if (hang_ || !welcomed_) return true;
    events.mutable_events()->set_epoch(options_.epoch);
    for (const TokenEvent& event : step()) {
      const bool skipped = static_cast<int>(event.index()) == options_.skip_index;
      if (skipped) {
        options_.skip_index = -1;
        continue;
      }
      *events.mutable_events()->add_events() = event;
      if (options_.duplicate_events) *events.mutable_events()->add_events() = event;
    }
    report = load();
  }
  return (events.events().events().empty() || stream.Write(events)) && stream.Write(report);
}

}  // namespace cohort
