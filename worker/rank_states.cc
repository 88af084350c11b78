// SPDX-License-Identifier: Apache-2.0
#include "worker/rank_states.h"

#include <unistd.h>

#include <utility>

#include "base/byte_io.h"

namespace cohort {

using std::chrono::duration_cast;
using std::chrono::milliseconds;

Result<std::vector<RankState>> introduce_ranks(World& world, const std::string& device,
                                               Duration timeout) {
  ByteWriter mine;
  mine.put(static_cast<int32_t>(::getpid()));
  mine.put_text(world.host());
  mine.put_text(device);
  COHORT_ASSIGN_OR_RETURN(const auto all, world.exchange(mine.take(), timeout));
  std::vector<RankState> ranks;
  for (const std::string& text : all) {
    ByteReader in(text);
    RankState rank;
    rank.rank = static_cast<int>(ranks.size());
    rank.pid = in.get<int32_t>();
    rank.host = in.get_text();
    rank.device = in.get_text();
    if (!in.done()) return data_loss(concat("rank ", rank.rank, " introduces itself wrongly"));
    ranks.push_back(std::move(rank));
  }
  return ranks;
}

RankStates::RankStates(std::vector<RankState> ranks, const Rank& rank, const ControlHub* hub)
    : rank_(rank), hub_(hub), ranks_(std::move(ranks)), progressed_(SteadyClock().now()) {
  for (RankState& state : ranks_) {
    const Coordinates at = rank.mesh().coordinates(state.rank);
    state.tp = at.tp;
    state.pp = at.pp;
    state.dp = at.dp;
  }
}

std::vector<RankState> RankStates::now() {
  const TimePoint now = SteadyClock().now();
  const std::lock_guard lock(mutex_);
  if (hub_ != nullptr) {
    for (const PeerState& peer : hub_->peers()) {
      if (peer.rank == 0) continue;
      RankState& state = ranks_.at(size_t(peer.rank));
      state.last_progress = duration_cast<milliseconds>(now - peer.last_progress);
      state.where = peer.progress.where;
      state.work = peer.progress.work;
    }
  }
  // Our own state is asked for here and not pushed to the hub.
  const Progress progress = rank_.progress();
  if (!progress.busy || progress.step != step_) progressed_ = now;
  step_ = progress.step;
  ranks_[0].last_progress = duration_cast<milliseconds>(now - progressed_);
  ranks_[0].where = progress.where;
  ranks_[0].work = progress.work;
  return ranks_;
}

}  // namespace cohort
