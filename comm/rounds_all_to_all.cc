// SPDX-License-Identifier: Apache-2.0
// Everybody to everybody, as rounds. A chunk is cut into one equal place per peer; a place holds a
// PairHeader and the next bytes for that peer. A rank knows its own sizes alone, so the headers
// also tell how many bytes the longest run of all has, and both ends of a pair check both sizes.
#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "comm/rounds.h"

namespace cohort {
namespace {

struct alignas(64) PairHeader {
  int64_t to_peer = 0, from_peer = 0;  // as the sender of the header sees them
  int64_t most = 0;                    // the longest run that the sender has for this group
  int64_t known = 0;                   // the longest run that it knows of
};
constexpr auto kHeader = int64_t(sizeof(PairHeader));

void copy_bytes(std::byte* to, const std::byte* from, int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, size_t(bytes));
}

// A pair whose runs are both through has no more words, after the first.
bool has_words(const OutgoingRun& to, const IncomingRun& from, int64_t at) {
  if (to.bytes == Part::kNone) return false;
  return at == 0 || at < std::max(to.bytes, from.bytes);
}

}  // namespace

// Bytes of a chunk for each peer.
int64_t RoundCommunicator::place_bytes() const {
  return chunk_bytes_ / std::max(1, size() - 1) / 64 * 64;
}

// Where in the chunk of `owner` the place of `peer` is.
int64_t RoundCommunicator::place_of(int owner, int peer) const {
  return place_bytes() * (peer < owner ? peer : peer - 1);
}

// Runs a round with bytes [at, at + place) for every peer.
Status RoundCommunicator::exchange_places(const RoundTag& tag, int64_t at, const Lengths& own) {
  const int64_t payload = place_bytes() - kHeader;
  std::byte* const chunk = outgoing();
  for (int r = 0; r < size(); r++) {
    const OutgoingRun& to = outgoing_runs_[size_t(r)];
    const IncomingRun& from = incoming_runs_[size_t(r)];
    to_[size_t(r)] = from_[size_t(r)] = {0, Part::kNone};
    if (r == rank() || !has_words(to, from, at)) continue;
    const PairHeader header{to.bytes, from.bytes, own.most, own.known};
    const int64_t n = std::clamp<int64_t>(to.bytes - at, 0, payload);
    std::byte* const place = chunk + place_of(rank(), r);
    std::memcpy(place, &header, sizeof header);
    publish(place + kHeader, to.data + at, n);
    to_[size_t(r)] = {place_of(rank(), r), kHeader + n};
    from_[size_t(r)] = {place_of(r, rank()), Part::kToldInside};
    // round() counts what goes with its header, and nothing of what comes.
    count(r, -kHeader, std::clamp<int64_t>(from.bytes - at, 0, payload));
  }
  return round(tag);
}

Status RoundCommunicator::check_pair(const RoundTag& tag, int peer) const {
  PairHeader theirs;
  std::memcpy(&theirs, incoming(peer), sizeof theirs);
  const auto differ = [&](int from, int64_t sent, int to, int64_t expected) {
    return internal_error(concat("ranks do not run the same collective: ", info().peer(from),
                                 " sends ", sent, " bytes to ", info().peer(to), ", which expects ",
                                 expected, ", in ", describe(tag, place_text())));
  };
  const int64_t to = outgoing_runs_[size_t(peer)].bytes;
  const int64_t from = incoming_runs_[size_t(peer)].bytes;
  if (theirs.to_peer != from) return differ(peer, theirs.to_peer, rank(), from);
  if (theirs.from_peer != to) return differ(rank(), to, peer, theirs.from_peer);
  return {};
}

// Of the round that has run. all: what this rank has heard of.
Status RoundCommunicator::take_places(const RoundTag& tag, int64_t at, Lengths& all) {
  const int64_t payload = place_bytes() - kHeader;
  for (int r = 0; r < size(); r++) {
    if (from_[size_t(r)].bytes != Part::kToldInside) continue;
    COHORT_RETURN_IF_ERROR(check_pair(tag, r));
    PairHeader theirs;
    std::memcpy(&theirs, incoming(r), sizeof theirs);
    all.most = std::max(all.most, theirs.most);
    all.known = std::max(all.known, theirs.known);
    const IncomingRun& run = incoming_runs_[size_t(r)];
    copy_bytes(run.data + at, incoming(r) + kHeader,
               std::clamp<int64_t>(run.bytes - at, 0, payload));
  }
  return {};
}

Status RoundCommunicator::run_all_to_all(const RoundTag& tag, Lengths& lengths) {
  const int64_t payload = place_bytes() - kHeader;
  COHORT_CHECK_GT(payload, 0);
  for (const OutgoingRun& run : outgoing_runs_) lengths.most = std::max(lengths.most, run.bytes);
  const Lengths own = lengths;
  int64_t at = 0;
  do {
    COHORT_RETURN_IF_ERROR(exchange_places(tag, at, own));
    COHORT_RETURN_IF_ERROR(take_places(tag, at, lengths));
    at += payload;
  } while (at < lengths.most);
  return {};
}

Status RoundCommunicator::exchange_runs(std::span<const OutgoingRun> to,
                                        std::span<const IncomingRun> from, Lengths& lengths) {
  COHORT_CHECK_EQ(int(to.size()), size());
  COHORT_CHECK_EQ(int(from.size()), size());
  std::copy(to.begin(), to.end(), outgoing_runs_.begin());
  std::copy(from.begin(), from.end(), incoming_runs_.begin());
  outgoing_runs_[size_t(rank())] = {};
  incoming_runs_[size_t(rank())] = {};
  return run([&] { return run_all_to_all(next_tag(Verb::all_to_all, 0, 0), lengths); });
}

Status RoundCommunicator::all_to_all(const void* in, std::span<const int64_t> to, void* out,
                                     std::span<const int64_t> from) {
  COHORT_CHECK_EQ(int(to.size()), size());
  COHORT_CHECK_EQ(int(from.size()), size());
  COHORT_CHECK_EQ(to[size_t(rank())], from[size_t(rank())]);
  const auto* source = static_cast<const std::byte*>(in);
  auto* target = static_cast<std::byte*>(out);
  for (int r = 0; r < size(); r++) {
    if (r == rank()) copy_bytes(target, source, to[size_t(r)]);
    const bool peer = r != rank();
    outgoing_runs_[size_t(r)] = peer ? OutgoingRun{source, to[size_t(r)]} : OutgoingRun{};
    incoming_runs_[size_t(r)] = peer ? IncomingRun{target, from[size_t(r)]} : IncomingRun{};
    source += to[size_t(r)];
    target += from[size_t(r)];
  }
  Lengths lengths;
  return run([&] { return run_all_to_all(next_tag(Verb::all_to_all, 0, 0), lengths); });
}

}  // namespace cohort
