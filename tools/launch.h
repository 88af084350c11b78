// SPDX-License-Identifier: Apache-2.0
// What a supervisor starts.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "base/status.h"
#include "tools/process.h"

namespace cohort {

// Looks after one start of a replica where its own end would tell too little or come too late. Its
// destructor ends what the start has left on other hosts.
class LaunchWatch {
 public:
  virtual ~LaunchWatch() = default;
  // Not OK, with the reason, once this start cannot come to a good end. loaded: whether its leader
  // has begun to load. Never waits.
  virtual Status poll(bool loaded) = 0;
  // After the process has ended: what is known about why, or "".
  virtual std::string explanation() = 0;
};

struct Launch {
  Command command;
  std::unique_ptr<LaunchWatch> watch;  // null: the process tells everything
};
using MakeLaunch = std::function<Result<Launch>()>;

}  // namespace cohort
