// SPDX-License-Identifier: Apache-2.0
// A child process in a process group of its own, with its standard output on a pipe and standard
// error shared with ours. It dies with us: the kernel kills it when the thread that started it ends
// (PR_SET_PDEATHSIG), so start children from the main thread. One thread uses a Process.
#pragma once
#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace cohort {

struct Command {
  std::vector<std::string> arguments;  // [0] is the program, found on PATH unless it has a slash
  std::vector<std::pair<std::string, std::string>> environment;  // added to ours
};

// How a process ended.
struct Exit {
  int code = 0;    // exit status, if it exited
  int signal = 0;  // else the signal that ended it
  std::string to_string() const;
  bool ok() const { return code == 0 && signal == 0; }
};

class Process {
 public:
  static Result<Process> start(const Command& command);
  Process(Process&& other) noexcept;
  Process& operator=(Process&& other) noexcept;
  ~Process();  // kills the whole group if it still runs

  pid_t pid() const { return pid_; }
  int output() const { return output_; }  // for poll(); -1 after the end of output
  // Reads what is there without waiting and calls `line` for every complete line.
  void read_lines(const std::function<void(const std::string&)>& line);
  // Its end, if it has ended. After that the object is done.
  std::optional<Exit> try_wait();
  // Waits at most so long.
  std::optional<Exit> wait(Duration timeout);
  void signal(int number) const;        // to the process
  void signal_group(int number) const;  // to it and its children that stayed in its group

 private:
  Process(pid_t pid, int output) : pid_(pid), output_(output) {}
  pid_t pid_ = -1;  // -1: ended or moved away
  int output_ = -1;
  std::string partial_;
};

// Runs a command to its end, its output shared with ours.
Result<Exit> run_to_end(const Command& command);

// The folder that holds this program and its siblings.
std::string program_folder();

}  // namespace cohort
