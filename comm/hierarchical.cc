// SPDX-License-Identifier: Apache-2.0
#include "comm/hierarchical.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace cohort {
namespace {

// Below this a slice costs more in messages than its link has of bytes.
constexpr int64_t kLeastSlice = 16 << 10;
constexpr int64_t kLine = 64;
constexpr size_t kMostPlans = 8;
constexpr int64_t kFloat = sizeof(float);

// How much longer a stage waits than the one before it.
Duration patience(Duration timeout) {
  return std::min<Duration>(timeout / 2 + std::chrono::milliseconds(100), std::chrono::seconds(2));
}

}  // namespace

HierarchicalCommunicator::HierarchicalCommunicator(GroupInfo info, HostMap hosts, Parts parts)
    : info_(std::move(info)),
      hosts_(std::move(hosts)),
      host_(hosts_.host_of(info_.rank)),
      member_(info_.rank - hosts_.first(host_)),
      parts_(std::move(parts)) {
  COHORT_CHECK_EQ(hosts_.ranks(), info_.size());
  COHORT_CHECK_EQ(parts_.local != nullptr, hosts_.size(host_) > 1);
  COHORT_CHECK_EQ(parts_.rail != nullptr, member_ < hosts_.rails());
}

RoundCommunicator& HierarchicalCommunicator::local(Stage stage) {
  parts_.local->set_timeout(timeout() + int(stage) * patience(timeout()));
  return *parts_.local;
}

RoundCommunicator& HierarchicalCommunicator::rail() {
  parts_.rail->set_timeout(timeout() + int(Stage::rails) * patience(timeout()));
  return *parts_.rail;
}

RoundCommunicator& HierarchicalCommunicator::direct(Stage stage) {
  parts_.direct->set_timeout(timeout() + int(stage) * patience(timeout()));
  return *parts_.direct;
}

Status HierarchicalCommunicator::keep(const Status& status) {
  if (status.ok()) return status;
  failure_ = status.annotate(info_.name);
  abort(failure_);
  return failure_;
}

// The parts carry the tag of the whole, so that members that differ name the whole.
Status HierarchicalCommunicator::run(Verb verb, int64_t bytes, uint64_t detail,
                                     FunctionRef<Status()> body) {
  if (!failure_.ok()) return failure_;
  const RoundTag tag = counter_.next(mark(), verb, bytes, detail);
  for (RoundCommunicator* part : {parts_.local.get(), parts_.rail.get(), parts_.direct.get()}) {
    if (part == nullptr) continue;
    part->set_place_text(place_text());
    part->run_within(tag);
  }
  return keep(body());
}

Status HierarchicalCommunicator::run_message(FunctionRef<Status()> body) {
  if (!failure_.ok()) return failure_;
  for (RoundCommunicator* part : {parts_.local.get(), parts_.direct.get()}) {
    if (part == nullptr) continue;
    part->set_place_text(place_text());
    part->set_mark(mark());
  }
  return keep(body());
}

void HierarchicalCommunicator::abort(const Status& why) {
  for (RoundCommunicator* part : {parts_.local.get(), parts_.rail.get(), parts_.direct.get()})
    if (part != nullptr) part->abort(why);
}

Traffic HierarchicalCommunicator::traffic() const {
  Traffic sum;
  for (const RoundCommunicator* part :
       {parts_.local.get(), parts_.rail.get(), parts_.direct.get()}) {
    if (part == nullptr) continue;
    const Traffic one = part->traffic();
    sum.sent_within += one.sent_within;
    sum.received_within += one.received_within;
    sum.sent_between += one.sent_between;
    sum.received_between += one.received_between;
  }
  return sum;
}

int64_t HierarchicalCommunicator::Slices::begin(int i) const {
  if (i >= rails) return count;
  return count * i / rails / align * align;
}

HierarchicalCommunicator::Slices HierarchicalCommunicator::slices(int64_t count,
                                                                  int64_t element_bytes) const {
  const int64_t useful = std::max<int64_t>(1, count * element_bytes / kLeastSlice);
  return {count, int(std::min<int64_t>(hosts_.rails(), useful)), kLine / element_bytes};
}

Status HierarchicalCommunicator::spread(void* data, const Slices& cut, int64_t element_bytes) {
  if (!parts_.local) return {};
  sizes_.assign(size_t(hosts_.size(host_)), 0);
  for (int i = 0; i < cut.rails; i++) sizes_[size_t(i)] = cut.size(i) * element_bytes;
  auto* bytes = static_cast<std::byte*>(data);
  return local(Stage::spread).all_gather(bytes + cut.begin(member_) * element_bytes, bytes, sizes_);
}

Status HierarchicalCommunicator::broadcast(void* data, int64_t bytes, int root) {
  COHORT_CHECK_LE(0, root);
  COHORT_CHECK_LT(root, size());
  return run(Verb::broadcast, bytes, uint64_t(root), [&]() -> Status {
    const int from = hosts_.host_of(root);
    if (from == host_ && parts_.local)
      COHORT_RETURN_IF_ERROR(
          local(Stage::gather).broadcast(data, bytes, root - hosts_.first(host_)));
    const Slices cut = slices(bytes, 1);
    if (carries(cut))
      COHORT_RETURN_IF_ERROR(rail().broadcast(static_cast<std::byte*>(data) + cut.begin(member_),
                                              cut.size(member_), from));
    return from == host_ ? Status() : spread(data, cut, 1);
  });
}

// The bytes of two members of one host go through shared memory, all others straight to the member.
Status HierarchicalCommunicator::all_to_all(const void* in, std::span<const int64_t> to, void* out,
                                            std::span<const int64_t> from) {
  COHORT_CHECK_EQ(int(to.size()), size());
  COHORT_CHECK_EQ(int(from.size()), size());
  COHORT_CHECK_EQ(to[size_t(rank())], from[size_t(rank())]);
  return run(Verb::all_to_all, 0, 0, [&]() -> Status {
    outgoing_.clear();
    incoming_.clear();
    const auto* source = static_cast<const std::byte*>(in);
    auto* target = static_cast<std::byte*>(out);
    for (int r = 0; r < size(); r++) {
      outgoing_.push_back({source, to[size_t(r)]});
      incoming_.push_back({target, from[size_t(r)]});
      if (r == rank() && to[size_t(r)] > 0) std::memcpy(target, source, size_t(to[size_t(r)]));
      source += to[size_t(r)];
      target += from[size_t(r)];
    }
    const auto first = size_t(hosts_.first(host_)), members = size_t(hosts_.size(host_));
    // Members of one host hear of each other's longest runs to other hosts here.
    Lengths lengths{.most = 0, .known = *std::max_element(to.begin(), to.end())};
    if (parts_.local)
      COHORT_RETURN_IF_ERROR(local(Stage::gather)
                                 .exchange_runs(std::span(outgoing_).subspan(first, members),
                                                std::span(incoming_).subspan(first, members),
                                                lengths));
    for (size_t r = first; r < first + members; r++) outgoing_[r] = {}, incoming_[r] = {};
    lengths.most = lengths.known;
    return direct(Stage::rails).exchange_runs(outgoing_, incoming_, lengths);
  });
}

Status HierarchicalCommunicator::barrier() {
  return run(Verb::barrier, 0, 0, [&]() -> Status {
    if (parts_.local) COHORT_RETURN_IF_ERROR(local(Stage::gather).barrier());
    if (member_ == 0) COHORT_RETURN_IF_ERROR(rail().barrier());
    return parts_.local ? local(Stage::spread).barrier() : Status();
  });
}

Status HierarchicalCommunicator::send(const void* data, int64_t bytes, int peer) {
  COHORT_CHECK_MSG(peer >= 0 && peer < size() && peer != rank(), concat("send to ", peer));
  return run_message([&] {
    return shares_host(peer) ? local(Stage::gather).send(data, bytes, peer - hosts_.first(host_))
                             : direct(Stage::gather).send(data, bytes, peer);
  });
}

Status HierarchicalCommunicator::recv(void* data, int64_t bytes, int peer) {
  COHORT_CHECK_MSG(peer >= 0 && peer < size() && peer != rank(), concat("recv from ", peer));
  return run_message([&] {
    return shares_host(peer) ? local(Stage::gather).recv(data, bytes, peer - hosts_.first(host_))
                             : direct(Stage::gather).recv(data, bytes, peer);
  });
}

HostReduction& HierarchicalCommunicator::reduction_of(const TreePlan& plan) {
  const auto found = std::find_if(reductions_.begin(), reductions_.end(),
                                  [&](const auto& known) { return known->is_of(plan); });
  if (found != reductions_.end()) {
    std::rotate(reductions_.begin(), found, found + 1);
  } else {
    if (reductions_.size() == kMostPlans) reductions_.pop_back();
    reductions_.insert(reductions_.begin(), std::make_unique<HostReduction>(plan, hosts_, host_));
  }
  return *reductions_.front();
}

Status HierarchicalCommunicator::all_reduce(const TreePlan& plan, float* pieces, float* out,
                                            int64_t count) {
  COHORT_CHECK_EQ(plan.ranks(), size());
  COHORT_CHECK_GE(count, 0);
  return run(Verb::all_reduce, plan.total_pieces() * count * kFloat, hash_of(plan),
             [&]() -> Status {
               HostReduction& reduction = reduction_of(plan);
               // One alone on its host has the host's pieces.
               if (!parts_.local) return rail().all_reduce(reduction.between(), pieces, out, count);
               const Slices cut = slices(count, kFloat);
               COHORT_RETURN_IF_ERROR(gather_pieces(plan, cut, pieces));
               if (carries(cut)) COHORT_RETURN_IF_ERROR(reduce_by_rail(reduction, cut, out));
               return spread(out, cut, kFloat);
             });
}

// The member of each rail gets its slice of all pieces of the host; sources_ says where they lie.
Status HierarchicalCommunicator::gather_pieces(const TreePlan& plan, const Slices& cut,
                                               const float* pieces) {
  const int members = hosts_.size(host_);
  const auto pieces_of = [&](int member) {
    return int64_t(plan.pieces(hosts_.first(host_) + member).size());
  };
  const int64_t own = pieces_of(member_);
  packed_.resize(size_t(own * cut.count));
  outgoing_.assign(size_t(members), {});
  incoming_.assign(size_t(members), {});
  float* to = packed_.data();
  for (int m = 0; m < members; m++) {
    const int64_t n = m < cut.rails ? cut.size(m) : 0;
    outgoing_[size_t(m)] = {reinterpret_cast<std::byte*>(to), own * n * kFloat};
    if (m == member_) continue;
    for (int64_t p = 0; p < own && n > 0; p++, to += n)
      std::memcpy(to, pieces + p * cut.count + cut.begin(m), size_t(n * kFloat));
  }
  const int64_t mine = carries(cut) ? cut.size(member_) : 0;
  int64_t all = 0;
  for (int m = 0; m < members; m++) all += pieces_of(m);
  gathered_.resize(size_t(all * mine));
  sources_.clear();
  float* from = gathered_.data();
  for (int m = 0; m < members; m++) {
    incoming_[size_t(m)] = {reinterpret_cast<std::byte*>(from), pieces_of(m) * mine * kFloat};
    for (int64_t p = 0; p < pieces_of(m); p++, from += mine)
      sources_.push_back(m == member_ ? pieces + p * cut.count + cut.begin(member_) : from);
  }
  Lengths lengths;
  return local(Stage::gather).exchange_runs(outgoing_, incoming_, lengths);
}

Status HierarchicalCommunicator::reduce_by_rail(HostReduction& reduction, const Slices& cut,
                                                float* out) {
  const int64_t n = cut.size(member_);
  host_pieces_.resize(reduction.between().pieces(host_).size() * size_t(n));
  reduction.run(sources_, host_pieces_.data(), n);
  return rail().all_reduce(reduction.between(), host_pieces_.data(), out + cut.begin(member_), n);
}

}  // namespace cohort
