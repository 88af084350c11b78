// SPDX-License-Identifier: Apache-2.0
// Our end of the daemons that one start of a replica has on other hosts (tools/host_daemon.h). Each
// connects to us and sends heartbeats; MPI's own daemons would notice a cut cable after many
// minutes, or never. Used by one thread.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "comm/control.h"
#include "tools/launch.h"

namespace cohort {

struct HostWatchOptions {
  std::string listen;              // an address of this machine that the hosts can reach
  std::vector<std::string> hosts;  // in the order in which mpirun numbers its daemons, from 1
  std::string agent;               // that starts a daemon, for messages
  Duration start_limit = std::chrono::seconds(60);  // for all daemons, and again until loading
  ControlTimes times;
};

class HostWatch : public LaunchWatch {
 public:
  static Result<std::unique_ptr<HostWatch>> create(HostWatchOptions options);
  ~HostWatch() override;

  // For the daemons: "10.0.0.1:4711/secret".
  const std::string& address() const { return hub_->address(); }

  Status poll(bool loaded) override;
  std::string explanation() override;

 private:
  HostWatch(HostWatchOptions options, std::unique_ptr<ControlHub> hub)
      : options_(std::move(options)), hub_(std::move(hub)) {}
  std::string missing() const;  // "b, c", or ""
  std::string silent() const;   // hosts that have not been heard for a while
  Status lost() const;

  const HostWatchOptions options_;
  const std::unique_ptr<ControlHub> hub_;
  const TimePoint started_ = std::chrono::steady_clock::now();
  TimePoint complete_{};
  bool all_here_ = false;
};

}  // namespace cohort
