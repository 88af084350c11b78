// SPDX-License-Identifier: Apache-2.0
#include "tools/host_watch.h"

#include <utility>

#include "base/check.h"

namespace cohort {
namespace {

void add(std::string& list, const std::string& more) { list += (list.empty() ? "" : ", ") + more; }

}  // namespace

Result<std::unique_ptr<HostWatch>> HostWatch::create(HostWatchOptions options) {
  COHORT_ASSIGN_OR_RETURN(auto hub, ControlHub::listen(options.listen, options.times));
  return std::unique_ptr<HostWatch>(new HostWatch(std::move(options), std::move(hub)));
}

HostWatch::~HostWatch() { (void)hub_->broadcast(FrameType::shutdown, ""); }

std::string HostWatch::missing() const {
  std::vector<bool> here(options_.hosts.size() + 1);
  for (const PeerState& peer : hub_->peers())
    if (size_t(peer.rank) < here.size()) here[size_t(peer.rank)] = true;
  std::string names;
  for (size_t i = 1; i < here.size(); i++)
    if (!here[i]) add(names, options_.hosts[i - 1]);
  return names;
}

std::string HostWatch::silent() const {
  const TimePoint now = std::chrono::steady_clock::now();
  std::string names;
  for (const PeerState& peer : hub_->peers()) {
    const Duration silence = now - peer.last_heartbeat;
    if (peer.rank > 0 && size_t(peer.rank) <= options_.hosts.size() &&
        silence > 3 * options_.times.heartbeat)
      add(names, concat(options_.hosts[size_t(peer.rank) - 1], " (for ", seconds(silence), " s)"));
  }
  return names;
}

Status HostWatch::lost() const {
  for (const PeerState& peer : hub_->peers()) {
    if (peer.connected || peer.rank < 1 || size_t(peer.rank) > options_.hosts.size()) continue;
    const std::string& host = options_.hosts[size_t(peer.rank) - 1];
    const Duration silence = std::chrono::steady_clock::now() - peer.last_heartbeat;
    if (silence >= options_.times.lease)
      return unavailable(
          concat("host ", host, " is lost: no heartbeat for ", seconds(silence), " s"));
    return unavailable("the daemon on host " + host + " has ended");
  }
  return {};
}

Status HostWatch::poll(bool loaded) {
  const TimePoint now = std::chrono::steady_clock::now();
  if (!all_here_ && hub_->accept(int(options_.hosts.size()) + 1, Duration::zero()).ok()) {
    all_here_ = true;
    complete_ = now;
  }
  COHORT_RETURN_IF_ERROR(lost());
  if (!all_here_ && now - started_ > options_.start_limit)
    return deadline_exceeded(concat("after ", seconds(options_.start_limit), " s ", explanation()));
  if (all_here_ && !loaded && now - complete_ > options_.start_limit)
    return deadline_exceeded(concat("the ranks did not meet within ", seconds(options_.start_limit),
                                    " s; can all hosts reach each other over the network that "
                                    "--network names?"));
  return {};
}

std::string HostWatch::explanation() {
  if (const std::string names = missing(); !names.empty())
    return concat("nothing was started on: ", names, " (by '", options_.agent,
                  "'); can it log in there, is this program there under the same path, and can ",
                  options_.listen, " be reached from there?");
  const std::string names = silent();
  return names.empty() ? "" : "not heard from: " + names;
}

}  // namespace cohort
