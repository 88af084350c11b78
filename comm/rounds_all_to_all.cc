// SPDX-License-Identifier: Apache-2.0
// Everybody to everybody, as rounds. A chunk is cut into one equal place per peer; a place holds a
// PairHeader and the next bytes for that peer. A rank knows its own sizes alone, so the headers
// also tell how many rounds the longest of all takes, and both ends of a pair check both sizes.
#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "comm/rounds.h"

namespace cohort {
namespace {

struct alignas(64) PairHeader {
  int64_t to_peer = 0, from_peer = 0;  // as the sender of the header sees them
  int64_t most = 0;                    // the most that the sender sends to one peer
};
constexpr auto kHeader = int64_t(sizeof(PairHeader));

void copy_bytes(std::byte* to, const std::byte* from, int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, size_t(bytes));
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

// Starts a round with bytes [at, at + place) for every peer, and ends it.
Status RoundCommunicator::exchange_places(const RoundTag& tag, const PairExchange& pairs,
                                          int64_t at) {
  const int64_t payload = place_bytes() - kHeader;
  std::byte* const chunk = outgoing();
  int64_t offset = at;
  for (int r = 0; r < size(); offset += pairs.to[size_t(r)], r++) {
    if (r == rank()) continue;
    const PairHeader header{pairs.to[size_t(r)], pairs.from[size_t(r)], pairs.most_to};
    const int64_t n = std::clamp<int64_t>(pairs.to[size_t(r)] - at, 0, payload);
    std::byte* const place = chunk + place_of(rank(), r);
    std::memcpy(place, &header, sizeof header);
    copy_bytes(place + kHeader, pairs.in + offset, n);
    to_[size_t(r)] = {place_of(rank(), r), kHeader + n};
    from_[size_t(r)] = {place_of(r, rank()), Part::kToldInside};
  }
  return round(tag);
}

Status RoundCommunicator::check_pair(const RoundTag& tag, const PairExchange& pairs,
                                     int peer) const {
  PairHeader theirs;
  std::memcpy(&theirs, incoming(peer), sizeof theirs);
  const auto differ = [&](int from, int64_t sent, int to, int64_t expected) {
    return internal_error(concat("ranks do not run the same collective: ", info().peer(from),
                                 " sends ", sent, " bytes to ", info().peer(to), ", which expects ",
                                 expected, ", in ", describe(tag, place_text())));
  };
  const int64_t to = pairs.to[size_t(peer)], from = pairs.from[size_t(peer)];
  if (theirs.to_peer != from) return differ(peer, theirs.to_peer, rank(), from);
  if (theirs.from_peer != to) return differ(rank(), to, peer, theirs.from_peer);
  return {};
}

Status RoundCommunicator::run_all_to_all(const RoundTag& tag, const PairExchange& pairs) {
  const int64_t payload = place_bytes() - kHeader;
  int64_t most = 0, at = 0;
  do {
    COHORT_RETURN_IF_ERROR(exchange_places(tag, pairs, at));
    int64_t offset = at;
    for (int r = 0; r < size(); offset += pairs.from[size_t(r)], r++) {
      if (r == rank()) continue;
      if (at == 0) {
        COHORT_RETURN_IF_ERROR(check_pair(tag, pairs, r));
        PairHeader theirs;
        std::memcpy(&theirs, incoming(r), sizeof theirs);
        most = std::max({most, theirs.most, pairs.most_to});
      }
      copy_bytes(pairs.out + offset, incoming(r) + kHeader,
                 std::clamp<int64_t>(pairs.from[size_t(r)] - at, 0, payload));
    }
    at += payload;
  } while (at < most);
  return {};
}

Status RoundCommunicator::all_to_all(const void* in, std::span<const int64_t> to, void* out,
                                     std::span<const int64_t> from) {
  COHORT_CHECK_EQ(int(to.size()), size());
  COHORT_CHECK_EQ(int(from.size()), size());
  COHORT_CHECK_EQ(to[size_t(rank())], from[size_t(rank())]);
  COHORT_CHECK_GT(place_bytes(), kHeader);
  return run([&]() -> Status {
    PairExchange pairs{static_cast<const std::byte*>(in), static_cast<std::byte*>(out), to, from};
    int64_t in_offset = 0, out_offset = 0;
    for (int r = 0; r < size(); r++) {
      if (r < rank()) in_offset += to[size_t(r)], out_offset += from[size_t(r)];
      if (r != rank()) pairs.most_to = std::max(pairs.most_to, to[size_t(r)]);
    }
    const Status status = run_all_to_all(next_tag(Verb::all_to_all, 0, 0), pairs);
    copy_bytes(pairs.out + out_offset, pairs.in + in_offset, to[size_t(rank())]);
    return status;
  });
}

}  // namespace cohort
