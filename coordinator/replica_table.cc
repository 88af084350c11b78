// SPDX-License-Identifier: Apache-2.0
#include "coordinator/replica_table.h"

#include <algorithm>

#include "base/log.h"

namespace cohort {

namespace {

constexpr size_t kMostReplicas = 1024;
constexpr size_t kMostRanks = 4096;
constexpr int64_t kMostExpertCounts = 1 << 16;  // of a replica
// Prefill that a replica holds ahead of its steps: enough that it never waits for us.
constexpr double kPrefillSeconds = 0.25;

std::string text_of(Duration d) { return concat(seconds(d), " s"); }

// Why a stranger is turned away, if so.
Status check_hello(const replica::v1::Hello& hello, const std::string& fingerprint) {
  if (hello.name().empty() || hello.name().size() > 256)
    return invalid_argument("a replica needs a name of 1 to 256 bytes");
  if (hello.max_context() < 2 || hello.max_batch() < 1 || hello.max_rows() < 1)
    return invalid_argument("max_context, max_batch and max_rows must be positive");
  if (static_cast<size_t>(hello.ranks_size()) > kMostRanks)
    return invalid_argument(concat("more than ", kMostRanks, " ranks"));
  if (!fingerprint.empty() && hello.model_fingerprint() != fingerprint)
    return failed_precondition(
        concat("this deployment serves the model with fingerprint ", fingerprint,
               ", and the replica has ", hello.model_fingerprint(), " (", hello.model_path(),
               "): start it with the same checkpoint, --activations and --kv-dtype"));
  return {};
}

// A few seconds' news, whatever a replica sends.
std::shared_ptr<const ExpertView> expert_view(const replica::v1::Experts& experts) {
  auto view = std::make_shared<ExpertView>();
  view->imbalance = experts.imbalance();
  view->copies = experts.copies();
  int64_t counts = 0;
  for (const auto& layer : experts.layers()) {
    counts += layer.tokens_size();
    if (counts > kMostExpertCounts) break;
    view->layers.push_back({layer.layer(), {layer.tokens().begin(), layer.tokens().end()}});
  }
  return view;
}

}  // namespace

const char* name(ReplicaState state) {
  switch (state) {
    case ReplicaState::connecting:
      return "CONNECTING";
    case ReplicaState::sync:
      return "SYNC";
    case ReplicaState::ready:
      return "READY";
    case ReplicaState::suspect:
      return "SUSPECT";
    case ReplicaState::draining:
      return "DRAINING";
    case ReplicaState::dead:
      return "DEAD";
  }
  return "?";
}

void ReplicaRecord::leave(const std::string& why) {
  leaving = true;
  state = ReplicaState::draining;
  problem = why;
}

int64_t ReplicaRecord::pending_prefill() const {
  int64_t own = 0, unseen = 0;
  for (const auto& [id, assignment] : assigned) {
    own += assignment.prefill_tokens;
    if (assignment.submit_number > load.last_submit()) unseen += assignment.prefill_tokens;
  }
  // Ours knows at once when a prefill has ended, the report knows how far one is.
  return std::min(own, load.queued_prefill_tokens() + unseen);
}

bool ReplicaRecord::has_room(int64_t prefill_tokens) const {
  const int batch = hello.max_batch();
  if (static_cast<int>(assigned.size()) >= batch + std::max(1, batch / 4)) return false;
  const int64_t pending = pending_prefill();
  if (pending == 0) return true;
  int64_t window = 2 * int64_t{hello.max_rows()};
  if (load.token_seconds() > 0)
    window = std::max(window,
                      static_cast<int64_t>(std::min(1e9, kPrefillSeconds / load.token_seconds())));
  return pending + prefill_tokens <= window;
}

RouteCandidate ReplicaRecord::candidate() const {
  RouteCandidate c;
  c.pending_prefill = pending_prefill();
  c.running = static_cast<int>(assigned.size());
  c.max_rows = hello.max_rows();
  c.step_seconds = load.step_seconds();
  c.token_seconds = load.token_seconds();
  if (load.blocks_total() > 0)
    c.kv_used = 1 - static_cast<double>(load.blocks_free() + load.blocks_cached()) /
                        static_cast<double>(load.blocks_total());
  return c;
}

Result<ReplicaTable::Joined> ReplicaTable::hello(uint64_t session,
                                                 std::shared_ptr<SessionLink> link,
                                                 const replica::v1::Hello& hello, TimePoint now) {
  COHORT_RETURN_IF_ERROR(check_hello(hello, fingerprint_));
  if (!replicas_.contains(hello.name()) && replicas_.size() >= kMostReplicas)
    return resource_exhausted(concat("more than ", kMostReplicas, " replica names"));
  fingerprint_ = hello.model_fingerprint();
  const bool known = replicas_.contains(hello.name());
  ReplicaRecord& record = replicas_[hello.name()];
  Joined joined;
  joined.record = &record;
  joined.resumed = known && record.epoch == hello.epoch() && record.alive();
  if (known && record.epoch != hello.epoch()) {
    ++record.restarts;
    joined.lost = bury(record, "a new incarnation has connected");
  }
  if (record.link && record.session != session) record.link->close();
  record.name = hello.name();
  record.epoch = hello.epoch();
  record.session = session;
  record.link = std::move(link);
  record.state = ReplicaState::sync;
  record.problem = "waiting for its first load report";
  record.hello = hello;
  record.loaded = false;
  record.leaving = false;
  record.heard = now;
  record.next_submit = 1;
  record.load.set_last_submit(0);
  for (auto& [sequence, assignment] : record.assigned) assignment.submit_number = 0;
  if (!joined.resumed) {
    record.load.Clear();
    record.experts.reset();
    record.prefixes = PrefixIndex(
        static_cast<size_t>(std::clamp<int64_t>(hello.kv_blocks() / 2 + 1, 64, 1 << 20)));
  }
  return joined;
}

bool ReplicaTable::load(uint64_t session, const replica::v1::Load& load, TimePoint now) {
  ReplicaRecord* record = by_session(session);
  if (!record || load.epoch() != record->epoch) return false;
  record->load = load;
  if (load.has_experts()) record->experts = expert_view(load.experts());
  record->loaded = true;
  record->heard = now;
  judge(*record, now);
  return true;
}

void ReplicaTable::closed(uint64_t session, TimePoint now) {
  ReplicaRecord* record = by_session(session);
  if (!record) return;
  record->session = 0;
  record->link.reset();
  record->lost = now;
  if (!record->alive()) return;
  const bool leaving = record->state == ReplicaState::draining && record->assigned.empty();
  record->state = ReplicaState::connecting;
  record->problem = "its connection was lost";
  if (leaving) {
    bury(*record, "it has drained and left");
  }
}

// Sets the state of a connected replica from what it reports.
void ReplicaTable::judge(ReplicaRecord& record, TimePoint now) {
  if (!record.loaded) return;
  record.problem.clear();
  record.state = ReplicaState::ready;
  const auto silent = now - record.heard;
  if (silent > times_.suspect_after) {
    record.state = ReplicaState::suspect;
    record.problem = concat("no report for ", text_of(silent));
  }
  const int64_t limit_ms =
      std::chrono::duration_cast<std::chrono::milliseconds>(times_.stall).count();
  for (const auto& rank : record.load.ranks()) {
    if (rank.last_progress_ms() <= limit_ms) continue;
    record.state = ReplicaState::suspect;
    record.problem =
        concat("rank ", rank.rank(), " on ", rank.host(), " (pid ", rank.pid(),
               ") has made no progress for ", static_cast<double>(rank.last_progress_ms()) / 1000,
               " s", rank.where().empty() ? "" : " in " + rank.where());
  }
  if (record.load.draining() || record.leaving) {
    record.state = ReplicaState::draining;
    record.problem = "it is draining";
  }
}

std::vector<uint64_t> ReplicaTable::bury(ReplicaRecord& record, const std::string& why) {
  std::vector<uint64_t> lost;
  for (const auto& [sequence, assignment] : record.assigned) lost.push_back(sequence);
  std::sort(lost.begin(), lost.end());  // oldest first, as they will be resubmitted
  record.assigned.clear();
  record.prefixes.clear();
  record.state = ReplicaState::dead;
  record.problem = why;
  if (record.link) record.link->close();
  return lost;
}

std::vector<std::pair<ReplicaRecord*, std::vector<uint64_t>>> ReplicaTable::check(TimePoint now) {
  std::vector<std::pair<ReplicaRecord*, std::vector<uint64_t>>> dead;
  for (auto& [name, record] : replicas_) {
    if (!record.alive()) continue;
    if (!record.link) {
      if (now - record.lost > times_.reconnect_grace)
        dead.emplace_back(&record, bury(record, "its connection was lost and it did not return"));
    } else if (now - record.heard > times_.dead_after) {
      dead.emplace_back(&record,
                        bury(record, concat("no report for ", text_of(now - record.heard))));
    } else {
      judge(record, now);
    }
  }
  return dead;
}

ReplicaRecord* ReplicaTable::by_session(uint64_t session) {
  for (auto& [name, record] : replicas_) {
    if (session != 0 && record.session == session) return &record;
  }
  return nullptr;
}

ReplicaRecord* ReplicaTable::by_name(const std::string& name) {
  const auto at = replicas_.find(name);
  return at == replicas_.end() ? nullptr : &at->second;
}

bool ReplicaTable::any_alive() const {
  return std::any_of(replicas_.begin(), replicas_.end(),
                     [](const auto& entry) { return entry.second.alive(); });
}

int ReplicaTable::max_context() const {
  int most = 0;
  for (const auto& [name, record] : replicas_) {
    if (record.alive()) most = std::max(most, record.hello.max_context());
  }
  return most;
}

std::vector<ReplicaView> ReplicaTable::view() const {
  std::vector<ReplicaView> views;
  for (const auto& [name, r] : replicas_) {
    ReplicaView v;
    v.name = name;
    v.state = r.state;
    v.problem = r.problem;
    v.tp = r.hello.layout().tp();
    v.pp = r.hello.layout().pp();
    v.shares.assign(r.hello.layout().shares().begin(), r.hello.layout().shares().end());
    v.max_context = r.hello.max_context();
    v.max_batch = r.hello.max_batch();
    v.restarts = r.restarts;
    v.running = r.load.running();
    v.queued = r.load.queued();
    v.assigned = static_cast<int>(r.assigned.size());
    v.blocks_total = r.loaded ? r.load.blocks_total() : r.hello.kv_blocks();
    v.blocks_free = r.load.blocks_free();
    v.blocks_cached = r.load.blocks_cached();
    v.preemptions = r.load.preemptions();
    v.steps = r.load.steps();
    const auto& ranks = r.load.ranks_size() ? r.load.ranks() : r.hello.ranks();
    for (const auto& k : ranks)
      v.ranks.push_back({k.rank(), k.host(), k.pid(), k.tp(), k.pp(), k.device(),
                         k.last_progress_ms(), k.where(), k.compute_seconds(),
                         k.communication_seconds(), k.hidden_communication_seconds(),
                         k.idle_seconds(), k.bytes_sent()});
    v.experts = r.experts;
    views.push_back(std::move(v));
  }
  return views;
}

}  // namespace cohort
