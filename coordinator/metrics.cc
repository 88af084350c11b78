// SPDX-License-Identifier: Apache-2.0
#include "coordinator/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <array>
#include <map>
#include <mutex>
#include <utility>

namespace cohort {

namespace {

using prometheus::Counter;
using prometheus::Gauge;
using prometheus::Histogram;
using Labels = std::map<std::string, std::string>;

const Histogram::BucketBoundaries kFirstToken = {0.001, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32,
                                                 0.64,  1.28,  2.56, 5.12, 10,   20,   40,   80};
const Histogram::BucketBoundaries kNextToken = {0.001, 0.0025, 0.005, 0.01, 0.02, 0.04,
                                                0.08,  0.16,   0.32,  0.64, 1.28, 2.56};
const Histogram::BucketBoundaries kWhole = {0.1, 0.3, 1, 2.5, 5, 10, 20, 40, 80, 160, 320, 640};

}  // namespace

const char* name(Outcome outcome) {
  switch (outcome) {
    case Outcome::stop:
      return "stop";
    case Outcome::length:
      return "length";
    case Outcome::cancelled:
      return "cancelled";
    case Outcome::failed:
      return "failed";
    case Outcome::rejected:
      return "rejected";
    case Outcome::timed_out:
      return "timed_out";
  }
  return "?";
}

struct Metrics::Families {
  explicit Families(const std::string& model) : labels{{"model_name", model}} {}

  Counter& counter(const char* name, const char* help) {
    return prometheus::BuildCounter().Name(name).Help(help).Labels(labels).Register(registry).Add(
        {});
  }
  Histogram& histogram(const char* name, const char* help, const Histogram::BucketBoundaries& b) {
    return prometheus::BuildHistogram().Name(name).Help(help).Labels(labels).Register(registry).Add(
        {}, b);
  }
  prometheus::Family<Gauge>& gauges(const char* name, const char* help) {
    return prometheus::BuildGauge().Name(name).Help(help).Labels(labels).Register(registry);
  }

  prometheus::Family<Counter>& counters(const char* name, const char* help) {
    return prometheus::BuildCounter().Name(name).Help(help).Labels(labels).Register(registry);
  }
  // A rank counts from its start; here it goes on where the last one ended.
  void count_rank(const std::string& replica, const RankView& rank) {
    const Labels of = {
        {"replica", replica}, {"rank", std::to_string(rank.rank)}, {"host", rank.host}};
    const std::array values = {rank.compute, rank.communication, rank.hidden_communication,
                               rank.idle, static_cast<double>(rank.bytes_sent)};
    std::array<double, 5>& seen = seen_of_ranks[{replica, rank.rank}];
    const std::array families = {&compute, &communication, &hidden, &idle, &sent};
    for (size_t i = 0; i < values.size(); i++) {
      families[i]->Add(of).Increment(values[i] >= seen[i] ? values[i] - seen[i] : values[i]);
      seen[i] = values[i];
    }
  }

  // As for ranks: a replica counts from its start.
  void count_experts(const std::string& replica, const ExpertView& experts) {
    imbalance.Add({{"replica", replica}}).Set(experts.imbalance);
    copies.Add({{"replica", replica}}).Set(experts.copies);
    for (const ExpertView::Layer& layer : experts.layers) {
      std::vector<uint64_t>& seen = seen_of_experts[{replica, layer.layer}];
      seen.resize(layer.tokens.size(), 0);
      for (size_t e = 0; e < seen.size(); e++) {
        const uint64_t now = layer.tokens[e], before = std::exchange(seen[e], now);
        if (now == before) continue;
        expert_tokens
            .Add({{"replica", replica},
                  {"layer", std::to_string(layer.layer)},
                  {"expert", std::to_string(e)}})
            .Increment(static_cast<double>(now > before ? now - before : now));
      }
    }
  }

  prometheus::Registry registry;
  const Labels labels;
  Counter& prompt = counter("cohort_prompt_tokens_total", "Prompt tokens of started sequences");
  Counter& cached =
      counter("cohort_prompt_tokens_cached_total", "Prompt tokens that came from a prefix cache");
  Counter& generated = counter("cohort_generation_tokens_total", "Tokens generated");
  Counter& failovers =
      counter("cohort_failovers_total", "Sequences that were resubmitted to another replica");
  Histogram& ttft = histogram("cohort_time_to_first_token_seconds",
                              "From arrival to the first token", kFirstToken);
  Histogram& itl =
      histogram("cohort_inter_token_latency_seconds", "Between tokens of a sequence", kNextToken);
  Histogram& e2e =
      histogram("cohort_e2e_request_latency_seconds", "From arrival to the end", kWhole);
  prometheus::Family<Counter>& requests = prometheus::BuildCounter()
                                              .Name("cohort_requests_total")
                                              .Help("Requests by how they ended")
                                              .Labels(labels)
                                              .Register(registry);
  prometheus::Family<Gauge>& running =
      gauges("cohort_num_requests_running", "Sequences on replicas");
  prometheus::Family<Gauge>& waiting =
      gauges("cohort_num_requests_waiting", "Sequences that wait for a replica");
  prometheus::Family<Gauge>& state = gauges("cohort_replica_state", "1 for the state it is in");
  prometheus::Family<Gauge>& restarts =
      gauges("cohort_replica_restarts", "Incarnations after the first");
  prometheus::Family<Gauge>& kv = gauges("cohort_kv_blocks", "KV blocks of a replica");
  prometheus::Family<Gauge>& kv_usage =
      gauges("cohort_kv_cache_usage_perc", "Share of KV blocks that sequences hold, 0 to 1");
  prometheus::Family<Counter>& compute = counters("cohort_rank_compute_seconds_total",
                                                  "Seconds of steps in which a rank did not wait");
  prometheus::Family<Counter>& communication =
      counters("cohort_rank_communication_seconds_total",
               "Seconds that a rank's collectives and messages took, waiting for peers included");
  prometheus::Family<Counter>& hidden =
      counters("cohort_rank_hidden_communication_seconds_total",
               "Seconds of communication during which the rank computed");
  prometheus::Family<Counter>& idle =
      counters("cohort_rank_idle_seconds_total", "Seconds of steps in which a rank waited");
  prometheus::Family<Counter>& sent =
      counters("cohort_rank_bytes_sent_total", "Bytes that a rank sent to others of its replica");
  prometheus::Family<Counter>& expert_tokens =
      counters("cohort_expert_tokens_total", "Tokens that chose an expert of a layer");
  prometheus::Family<Gauge>& imbalance =
      gauges("cohort_expert_imbalance",
             "Largest load of a rank with experts over the mean, of the last seconds");
  prometheus::Family<Gauge>& copies =
      gauges("cohort_expert_copies", "Copies of experts on further ranks");
  prometheus::Family<Gauge>& preemptions =
      gauges("cohort_num_preemptions", "Preemptions since the replica started");
  std::mutex render_mutex;
  // By replica and rank, what was last reported; guarded by render_mutex.
  std::map<std::pair<std::string, int>, std::array<double, 5>> seen_of_ranks;
  std::map<std::pair<std::string, int>, std::vector<uint64_t>> seen_of_experts;  // and layer
};

Metrics::Metrics(const std::string& model) : families_(std::make_unique<Families>(model)) {}
Metrics::~Metrics() = default;

void Metrics::prompt_tokens(int64_t tokens, int64_t cached) {
  families_->prompt.Increment(static_cast<double>(tokens));
  families_->cached.Increment(static_cast<double>(cached));
}
void Metrics::generation_tokens(int64_t tokens) {
  families_->generated.Increment(static_cast<double>(tokens));
}
void Metrics::first_token(double seconds) { families_->ttft.Observe(seconds); }
void Metrics::next_token(double seconds) { families_->itl.Observe(seconds); }
void Metrics::failover() { families_->failovers.Increment(); }

void Metrics::request_done(Outcome outcome, double seconds) {
  families_->requests.Add({{"outcome", name(outcome)}}).Increment();
  if (outcome == Outcome::stop || outcome == Outcome::length) families_->e2e.Observe(seconds);
}

std::string Metrics::render(const ClusterView& view) {
  Families& f = *families_;
  const std::lock_guard lock(f.render_mutex);
  f.running.Add({}).Set(view.running);
  f.waiting.Add({}).Set(view.waiting);
  for (const ReplicaView& r : view.replicas) {
    for (const auto state : {ReplicaState::connecting, ReplicaState::sync, ReplicaState::ready,
                             ReplicaState::suspect, ReplicaState::draining, ReplicaState::dead})
      f.state.Add({{"replica", r.name}, {"state", name(state)}}).Set(r.state == state);
    const Labels labels = {{"replica", r.name}};
    f.restarts.Add(labels).Set(r.restarts);
    f.preemptions.Add(labels).Set(static_cast<double>(r.preemptions));
    const auto kv = [&](const char* kind, int64_t blocks) {
      f.kv.Add({{"replica", r.name}, {"kind", kind}}).Set(static_cast<double>(blocks));
    };
    kv("total", r.blocks_total);
    kv("free", r.blocks_free);
    kv("cached", r.blocks_cached);
    const double held = static_cast<double>(r.blocks_total - r.blocks_free - r.blocks_cached);
    for (const RankView& rank : r.ranks) f.count_rank(r.name, rank);
    if (r.experts) f.count_experts(r.name, *r.experts);
    f.kv_usage.Add(labels).Set(r.blocks_total > 0 ? held / static_cast<double>(r.blocks_total) : 0);
  }
  return prometheus::TextSerializer().Serialize(f.registry.Collect());
}

}  // namespace cohort
