// SPDX-License-Identifier: Apache-2.0
#include "comm/rounds.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "base/check.h"

namespace cohort {
namespace {

// Above this total each rank adds up a slice of the elements in place of all of them, where that
// means fewer bytes from peers; below, one round costs less than two.
constexpr int64_t kDirectBytes = 64 << 10;
constexpr int64_t kFloat = sizeof(float);
constexpr int64_t kLineFloats = 16;

int64_t most_pieces(const TreePlan& plan) {
  size_t most = 1;
  for (int r = 0; r < plan.ranks(); r++) most = std::max(most, plan.pieces(r).size());
  return int64_t(most);
}

int64_t pieces_of(const TreePlan& plan, int rank) { return int64_t(plan.pieces(rank).size()); }

void copy_bytes(void* to, const void* from, int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, size_t(bytes));
}

}  // namespace

std::string GroupInfo::peer(int group_rank) const {
  return concat("rank ", world_ranks[size_t(group_rank)], " on host ", hosts[size_t(group_rank)]);
}

GroupInfo subgroup(const GroupInfo& info, const std::vector<int>& members) {
  GroupInfo some{.rank = 0, .world_ranks = {}, .hosts = {}, .name = {}};
  for (size_t i = 0; i < members.size(); i++) {
    if (members[i] == info.rank) some.rank = int(i);
    some.world_ranks.push_back(info.world_ranks[size_t(members[i])]);
    some.hosts.push_back(info.hosts[size_t(members[i])]);
  }
  return some;
}

std::string group_name(const std::string& kind, const std::string& label,
                       const std::vector<int>& members) {
  std::string list;
  for (int member : members) list += (list.empty() ? "" : ", ") + std::to_string(member);
  return kind + " " + label + " group {" + list + "}";
}

Status check_members(const std::vector<int>& members, int rank, int world_size) {
  const std::set<int> distinct(members.begin(), members.end());
  if (distinct.size() != members.size() || distinct.empty() || *distinct.begin() < 0 ||
      *distinct.rbegin() >= world_size || !distinct.count(rank))
    return invalid_argument(group_name("a", "communicator", members) +
                            ": members must be distinct ranks of a world of " +
                            std::to_string(world_size) + ", this rank (" + std::to_string(rank) +
                            ") among them");
  return {};
}

RoundCommunicator::RoundCommunicator(GroupInfo info, int64_t chunk_bytes)
    : info_(std::move(info)),
      chunk_bytes_(chunk_bytes),
      seen_(info_.world_ranks.size()),
      to_(info_.world_ranks.size()),
      from_(info_.world_ranks.size()),
      outgoing_runs_(info_.world_ranks.size()),
      incoming_runs_(info_.world_ranks.size()) {
  COHORT_CHECK_EQ(chunk_bytes % 64, 0);
  COHORT_CHECK_EQ(info_.hosts.size(), info_.world_ranks.size());
}

Status RoundCommunicator::run(FunctionRef<Status()> verb) {
  if (failure_.ok() && aborted()) failure_ = abort_status();
  if (!failure_.ok()) return failure_;
  Status status = verb();
  if (!status.ok()) {
    failure_ = status.annotate(info_.name);
    give_up(failure_);
    return failure_;
  }
  return status;
}

RoundTag RoundCommunicator::next_tag(Verb verb, int64_t bytes, uint64_t detail) {
  if (!outer_) return counter_.next(mark(), verb, bytes, detail);
  outer_->part++;
  return *outer_;
}

void RoundCommunicator::publish(std::byte* to, const void* from, int64_t bytes) {
  copy_bytes(to, from, bytes);
}

void RoundCommunicator::run_within(const RoundTag& outer) { outer_ = outer; }

Status RoundCommunicator::check_tag(int peer, const RoundTag& mine, const RoundTag& theirs) {
  seen_[size_t(peer)] = theirs;
  if (mine == theirs) return {};
  return internal_error(concat("ranks do not run the same collective: ", info_.peer(peer),
                               " is in ", describe(theirs, place_text()), ", this rank (",
                               info_.peer(rank()), ") in ", describe(mine, place_text())));
}

Status RoundCommunicator::check_message(int peer, const MessageHeader& mine,
                                        const MessageHeader& theirs) const {
  if (mine.message_bytes == theirs.message_bytes && mine.offset == theirs.offset) return {};
  return internal_error(concat(info_.peer(peer), " sends ", describe(theirs, place_text()),
                               ", this rank (", info_.peer(rank()), ") receives ",
                               describe(mine, place_text())));
}

std::string RoundCommunicator::late_peer(int peer) const {
  const RoundTag& last = seen_[size_t(peer)];
  if (last.sequence == 0) return info_.peer(peer);
  return concat(info_.peer(peer), " (last in ", describe(last, place_text()), ")");
}

Status RoundCommunicator::late_message(const Status& status, const char* verb,
                                       int64_t bytes) const {
  if (status.code() != Code::kDeadlineExceeded) return status;
  return {status.code(), concat(status.message(), "; this rank ", verb, " ",
                                describe(MessageHeader{bytes, 0, mark()}, place_text()))};
}

void RoundCommunicator::count(int peer, int64_t sent, int64_t received) {
  const bool within = shares_host(peer);
  (within ? sent_within_ : sent_between_).fetch_add(sent, std::memory_order_relaxed);
  (within ? received_within_ : received_between_).fetch_add(received, std::memory_order_relaxed);
}

Traffic RoundCommunicator::traffic() const {
  return {sent_within_.load(std::memory_order_relaxed),
          received_within_.load(std::memory_order_relaxed),
          sent_between_.load(std::memory_order_relaxed),
          received_between_.load(std::memory_order_relaxed)};
}

Status RoundCommunicator::round(const RoundTag& tag) {
  const Status status = exchange(tag, to_, from_);
  if (status.code() == Code::kDeadlineExceeded)
    return {status.code(),
            concat(status.message(), "; this rank is in ", describe(tag, place_text()))};
  for (int r = 0; r < size() && status.ok(); r++)
    if (r != rank())
      count(r, std::max<int64_t>(to_[size_t(r)].bytes, 0),
            std::max<int64_t>(from_[size_t(r)].bytes, 0));
  return status;
}

void RoundCommunicator::abort(const Status& why) {
  {
    const std::lock_guard lock(abort_mutex_);
    if (aborted_.load(std::memory_order_relaxed)) return;
    abort_status_ = why;
    aborted_.store(true, std::memory_order_release);
  }
  give_up(why);
}

Status RoundCommunicator::abort_status() const {
  const std::lock_guard lock(abort_mutex_);
  return abort_status_;
}

Status RoundCommunicator::all_reduce(const TreePlan& plan, float* pieces, float* out,
                                     int64_t count) {
  COHORT_CHECK_EQ(plan.ranks(), size());
  COHORT_CHECK_GE(count, 0);
  return run([&]() -> Status {
    const int64_t total = plan.total_pieces();
    const RoundTag tag = next_tag(Verb::all_reduce, total * count * kFloat, hash_of(plan));
    reduction_ = {&plan, pieces, out, count};
    // Bytes read from peers: T (n-1)/n in one round, (T/n + 1) (n-1)/n in two.
    const bool sliced = tag.bytes > kDirectBytes && total * (size() - 1) > size();
    // Whole cache lines per piece, so that no two pieces share one.
    const int64_t chunk = chunk_bytes_ / kFloat / most_pieces(plan) / kLineFloats * kLineFloats;
    if (chunk == 0) return invalid_argument("all_reduce: too many pieces per rank for one chunk");
    int64_t begin = 0;
    do {
      const int64_t n = std::min(chunk, count - begin);
      COHORT_RETURN_IF_ERROR(sliced ? reduce_sliced(tag, begin, n) : reduce_direct(tag, begin, n));
      begin += n;
    } while (begin < count);
    return {};
  });
}

// Everyone gets all pieces of elements [begin, begin + n) and adds them up.
Status RoundCommunicator::reduce_direct(const RoundTag& tag, int64_t begin, int64_t n) {
  const TreePlan& plan = *reduction_.plan;
  const float* own = reduction_.pieces + begin;
  std::byte* slot = outgoing();
  for (int64_t p = 0; p < pieces_of(plan, rank()); p++)
    publish(slot + p * n * kFloat, own + p * reduction_.count, n * kFloat);
  for (int r = 0; r < size(); r++) {
    to_[size_t(r)] = {0, pieces_of(plan, rank()) * n * kFloat};
    from_[size_t(r)] = {0, pieces_of(plan, r) * n * kFloat};
  }
  COHORT_RETURN_IF_ERROR(round(tag));
  sources_.clear();
  for (int r = 0; r < size(); r++)
    for (int64_t p = 0; p < pieces_of(plan, r); p++)
      sources_.push_back(r == rank() ? own + p * reduction_.count
                                     : reinterpret_cast<const float*>(incoming(r)) + p * n);
  tree_sum_.run(plan, sources_, reduction_.out + begin, n);
  return {};
}

int64_t RoundCommunicator::slice_begin(int64_t count, int rank) const {
  if (rank == size()) return count;
  return count * rank / size() / kLineFloats * kLineFloats;
}

// Rank r gets all pieces of slice r of the elements, adds them up, and gives everyone the sum. A
// chunk holds slice after slice, and in each this rank's pieces one after the other.
Status RoundCommunicator::reduce_sliced(const RoundTag& tag, int64_t begin, int64_t n) {
  const TreePlan& plan = *reduction_.plan;
  const int64_t own_pieces = pieces_of(plan, rank());
  const int64_t own_begin = slice_begin(n, rank()), own = slice_begin(n, rank() + 1) - own_begin;
  std::byte* slot = outgoing();
  for (int r = 0; r < size(); r++) {
    const int64_t first = slice_begin(n, r), length = slice_begin(n, r + 1) - first;
    to_[size_t(r)] = {own_pieces * first * kFloat, own_pieces * length * kFloat};
    from_[size_t(r)] = {pieces_of(plan, r) * own_begin * kFloat, pieces_of(plan, r) * own * kFloat};
    if (r == rank()) continue;
    for (int64_t p = 0; p < own_pieces; p++)
      publish(slot + (own_pieces * first + p * length) * kFloat,
              reduction_.pieces + p * reduction_.count + begin + first, length * kFloat);
  }
  COHORT_RETURN_IF_ERROR(round(tag));
  sources_.clear();
  for (int r = 0; r < size(); r++)
    for (int64_t p = 0; p < pieces_of(plan, r); p++)
      sources_.push_back(r == rank() ? reduction_.pieces + p * reduction_.count + begin + own_begin
                                     : reinterpret_cast<const float*>(incoming(r)) + p * own);
  float* sum = reduction_.out + begin;
  tree_sum_.run(plan, sources_, sum + own_begin, own);

  publish(outgoing(), sum + own_begin, own * kFloat);
  for (int r = 0; r < size(); r++) {
    to_[size_t(r)] = {0, own * kFloat};
    from_[size_t(r)] = {0, (slice_begin(n, r + 1) - slice_begin(n, r)) * kFloat};
  }
  COHORT_RETURN_IF_ERROR(round(tag));
  for (int r = 0; r < size(); r++)
    if (r != rank()) copy_bytes(sum + slice_begin(n, r), incoming(r), from_[size_t(r)].bytes);
  return {};
}

Status RoundCommunicator::all_gather(const void* in, void* out, std::span<const int64_t> bytes) {
  COHORT_CHECK_EQ(int(bytes.size()), size());
  return run([&]() -> Status {
    int64_t total = 0, most = 0, own_offset = 0;
    for (int r = 0; r < size(); r++) {
      if (r == rank()) own_offset = total;
      total += bytes[size_t(r)];
      most = std::max(most, bytes[size_t(r)]);
    }
    const RoundTag tag = next_tag(Verb::all_gather, total, hash_of(bytes));
    const auto part = [&](int r, int64_t at) {
      return std::clamp<int64_t>(bytes[size_t(r)] - at, 0, chunk_bytes_);
    };
    std::byte* const to = static_cast<std::byte*>(out);
    const int64_t own = bytes[size_t(rank())];
    if (own > 0) std::memmove(to + own_offset, in, size_t(own));
    int64_t at = 0;
    do {
      publish(outgoing(), to + own_offset + at, part(rank(), at));
      for (int r = 0; r < size(); r++) {
        to_[size_t(r)] = {0, part(rank(), at)};
        from_[size_t(r)] = {0, part(r, at)};
      }
      COHORT_RETURN_IF_ERROR(round(tag));
      int64_t offset = at;
      for (int r = 0; r < size(); offset += bytes[size_t(r++)])
        if (r != rank()) copy_bytes(to + offset, incoming(r), part(r, at));
      at += chunk_bytes_;
    } while (at < most);
    return {};
  });
}

Status RoundCommunicator::broadcast(void* data, int64_t bytes, int root) {
  COHORT_CHECK_LE(0, root);
  COHORT_CHECK_LT(root, size());
  return run([&]() -> Status {
    const RoundTag tag = next_tag(Verb::broadcast, bytes, uint64_t(root));
    std::byte* const at = static_cast<std::byte*>(data);
    int64_t begin = 0;
    do {
      const int64_t n = std::min(chunk_bytes_, bytes - begin);
      if (rank() == root) publish(outgoing(), at + begin, n);
      std::fill(to_.begin(), to_.end(), Part{0, rank() == root ? n : 0});
      std::fill(from_.begin(), from_.end(), Part{});
      from_[size_t(root)] = {0, n};
      COHORT_RETURN_IF_ERROR(round(tag));
      if (rank() != root) copy_bytes(at + begin, incoming(root), n);
      begin += n;
    } while (begin < bytes);
    return {};
  });
}

Status RoundCommunicator::barrier() {
  return run([&]() -> Status {
    std::fill(to_.begin(), to_.end(), Part{});
    std::fill(from_.begin(), from_.end(), Part{});
    return round(next_tag(Verb::barrier, 0, 0));
  });
}

Status RoundCommunicator::send(const void* data, int64_t bytes, int peer) {
  COHORT_CHECK_MSG(peer >= 0 && peer < size() && peer != rank(), concat("send to ", peer));
  return run([&]() -> Status {
    COHORT_RETURN_IF_ERROR(
        late_message(send_bytes(static_cast<const std::byte*>(data), bytes, peer), "sends", bytes));
    count(peer, bytes, 0);
    return {};
  });
}

Status RoundCommunicator::recv(void* data, int64_t bytes, int peer) {
  COHORT_CHECK_MSG(peer >= 0 && peer < size() && peer != rank(), concat("recv from ", peer));
  return run([&]() -> Status {
    COHORT_RETURN_IF_ERROR(
        late_message(recv_bytes(static_cast<std::byte*>(data), bytes, peer), "receives", bytes));
    count(peer, 0, bytes);
    return {};
  });
}

}  // namespace cohort
