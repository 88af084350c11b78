// SPDX-License-Identifier: Apache-2.0
// The coordinator's core: what both fronts call and what the leaders' sessions feed. A request goes
// through admission (caller's thread), encoding (work pool), the fair queue, the router and a
// replica; its tokens come back through the text pipeline to its sink. If the replica dies, the
// request goes on elsewhere from what has been taken.
//
// Public calls may come from any thread. Everything named "core" runs on the loop's thread.
#pragma once
#include <atomic>
#include <deque>
#include <memory>
#include <random>

#include "coordinator/admission.h"
#include "coordinator/cluster_view.h"
#include "coordinator/core_loop.h"
#include "coordinator/fair_queue.h"
#include "coordinator/journal.h"
#include "coordinator/metrics.h"
#include "coordinator/replica_table.h"
#include "coordinator/served_model.h"
#include "coordinator/session_link.h"
#include "coordinator/work_pool.h"

namespace cohort {

struct ServiceOptions {
  AdmissionLimits admission;
  ReplicaTimes replicas;
  RequestLimits request;
  Duration replica_wait = std::chrono::seconds(60);  // for a replica, when there is none
  int encode_threads = 2;
  uint32_t most_attempts = 3;
  int most_crashes = 2;  // a sequence that was there for so many is suspected to cause them
};

class RequestService : public SessionEvents {
 public:
  // One line for whoever started us: "replica NAME READY ...". Called by the core thread.
  using Announce = std::function<void(const std::string&)>;
  RequestService(std::shared_ptr<const ServedModel> model, const ServiceOptions& options,
                 Announce announce);
  ~RequestService() override;

  // Every outcome, also refusal, comes through the sink; a refusal may come before submit returns.
  // The id is for cancel().
  uint64_t submit(GenerateRequest request, std::shared_ptr<ResponseSink> sink);
  // The client is gone. The sink hears nothing more once the core has taken this in.
  void cancel(uint64_t id);
  // Runs work on the encoding threads; false if they have too much to do.
  bool offload(std::function<void()> work) { return pool_.post(std::move(work)); }

  // Lets nobody in from now on.
  void close_admission() { admission_.close(); }
  bool stopping() const { return admission_.closed(); }
  // Fails what is open, tells it to the sinks and ends the threads. Leaders must be gone before or
  // find their events dropped.
  void stop();
  int open_sequences() const { return admission_.open_sequences(); }
  // Tells a replica to finish what it has and leave. False if there is none of that name.
  bool drain(const std::string& replica_name);

  // Why a request for this model is refused; "" is the one that is served.
  std::optional<Failure> check_model(const std::string& name) const;
  const ServedModel& model() const { return *model_; }
  const ServiceOptions& options() const { return options_; }
  std::shared_ptr<const ClusterView> view() const { return board_.read(); }
  Metrics& metrics() { return metrics_; }
  int max_context() const { return max_context_.load(); }

  // SessionEvents
  void opened(uint64_t session, std::shared_ptr<SessionLink> link) override;
  void received(uint64_t session, replica::v1::LeaderMessage message) override;
  void closed(uint64_t session) override;

 private:
  // request_service.cc
  AdmissionCost cost_of(const GenerateRequest& request) const;
  void open_request(std::unique_ptr<OpenRequest> request);
  void encoded(uint64_t id, Result<std::vector<TokenList>> prompts);
  std::optional<Failure> check_prompts(const OpenRequest& request,
                                       const std::vector<TokenList>& prompts) const;
  void enqueue(OpenRequest& request, const std::vector<TokenList>& prompts);
  std::optional<Failure> check_deadline_is_possible(const OpenRequest& request,
                                                    const std::vector<TokenId>& prompt) const;
  void round();

  // dispatch.cc
  void dispatch(TimePoint now);
  bool place(Sequence& sequence, TimePoint now);
  void send(Sequence& sequence, ReplicaRecord& record, int64_t matched);
  void check_waiting(TimePoint now);
  void check_deadlines(TimePoint now);
  void publish(TimePoint now);

  // sessions.cc
  void take(uint64_t session, const replica::v1::LeaderMessage& message);
  void take_hello(uint64_t session, const replica::v1::Hello& hello);
  void resume(ReplicaRecord& record, const replica::v1::Hello& hello);
  void take_events(uint64_t session, const replica::v1::Events& events);
  void take_event(ReplicaRecord& record, const replica::v1::TokenEvent& event);
  void acknowledge_stray(ReplicaRecord& record, const replica::v1::TokenEvent& event);
  void check_replicas(TimePoint now);
  void announce_state(const ReplicaRecord& record);
  void requeue(uint64_t sequence_id, const std::string& why, bool crashed);

  // deliver.cc
  bool deliver(ReplicaRecord& record, Sequence& sequence, const replica::v1::TokenEvent& event);
  void finish_event(Sequence& sequence, const replica::v1::TokenEvent& event);
  void turned_away(Sequence& sequence, const std::string& why);
  void count_tokens(OpenRequest& request, Sequence& sequence, int64_t fresh);
  void acknowledge(ReplicaRecord& record, Sequence& sequence);
  void complete(Sequence& sequence, FinishReason reason);
  void detach(Sequence& sequence, bool tell_replica);
  void fail(uint64_t request_id, const Failure& failure, Outcome outcome);
  void drop(OpenRequest& request);
  TokenRecord record_of(const replica::v1::Token& token) const;

  // Constant after construction.
  const std::shared_ptr<const ServedModel> model_;
  const ServiceOptions options_;
  const Announce announce_;

  // Thread-safe.
  Admission admission_;
  Metrics metrics_;
  ClusterBoard board_;
  std::atomic<uint64_t> next_id_;
  std::atomic<int> max_context_;

  // Core thread.
  Journal journal_;
  FairQueue queue_;
  std::deque<uint64_t> resubmit_;  // sequences that lost their replica; they go first
  ReplicaTable replicas_;
  // Sessions before their Hello.
  struct Stranger {
    std::shared_ptr<SessionLink> link;
    TimePoint since;
  };
  std::unordered_map<uint64_t, Stranger> strangers_;
  std::unordered_map<std::string, ReplicaState> announced_;
  std::mt19937_64 random_;
  TimePoint had_replica_;  // last time that one was alive
  TimePoint last_check_{};
  TimePoint last_publish_{};
  bool stopped_ = false;
  const uint64_t epoch_;

  WorkPool pool_;
  CoreLoop loop_;
};

}  // namespace cohort
