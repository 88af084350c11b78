// SPDX-License-Identifier: Apache-2.0
// Commands as child processes with a limit on their time.
#pragma once
#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace cohort::gpu_check {

struct ChildEnd {
  bool well = false;  // ended by itself with 0
  std::string text;   // how it ended otherwise
};
using Environment = std::vector<std::pair<std::string, std::string>>;

// Path of this program.
std::string own_path();

// Starts command[0] with its arguments, in a process group of its own, with these additions to the
// environment; standard output and error go to the file `log` (appended). It dies with its parent.
class Child {
 public:
  Child(const std::vector<std::string>& command, const Environment& environment,
        const std::string& log);
  ~Child();  // kills it and all of its group
  Child(Child&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}
  ChildEnd wait(const Deadline& deadline);

 private:
  pid_t pid_ = -1;
};

ChildEnd run_command(const std::vector<std::string>& command, const Environment& environment,
                     const std::string& log, Duration limit);

}  // namespace cohort::gpu_check
