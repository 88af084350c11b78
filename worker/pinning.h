// SPDX-License-Identifier: Apache-2.0
// A rank's threads on processors of their own, so that no two of them meet on one while another is
// idle, and caches stay with who filled them.
//
// Ranks do not agree on who gets what: each claims processors that nobody else of the system has
// claimed, of this replica or another, with locks that end with the process. What confined the
// process (mpirun, a container) is respected.
#pragma once
#include <vector>

#include "base/file_descriptor.h"
#include "base/threads.h"

namespace cohort {

class Pinning {
 public:
  // Nothing is pinned.
  Pinning() = default;
  // Claims one processor for each thread; nothing where there are not enough for all ranks of the
  // host, or others have them.
  static Pinning claim(int threads, int ranks_on_host);

  bool pinned() const { return !processors_.empty(); }
  const std::vector<int>& processors() const { return processors_; }  // by thread

  // Every thread of the pool but the caller, who is thread 0, to its processor.
  void pin_pool(ThreadPool& threads) const;
  // The calling thread to that of thread 0. Threads that it starts later are where it is.
  void pin_step_thread() const;

  // While it exists the calling thread, and so what it starts, is on the rank's processors.
  class Confined {
   public:
    explicit Confined(const Pinning& pinning);
    ~Confined();
    Confined(const Confined&) = delete;
    Confined& operator=(const Confined&) = delete;

   private:
    std::vector<int> before_;  // empty: nothing to restore
  };

 private:
  std::vector<int> processors_;
  std::vector<FileDescriptor> locks_;
};

// Processors of the calling thread: the first hardware thread of every core before the others, in
// ascending order.
std::vector<int> usable_processors();

}  // namespace cohort
