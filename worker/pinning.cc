// SPDX-License-Identifier: Apache-2.0
#include "worker/pinning.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <utility>

#include "base/status.h"

namespace cohort {
namespace {

std::string folder_of(int processor) { return concat("/sys/devices/system/cpu/cpu", processor); }

std::vector<int> affinity() {
  cpu_set_t set;
  std::vector<int> processors;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return processors;  // more than 1024 of them
  for (int i = 0; i < CPU_SETSIZE; i++)
    if (CPU_ISSET(i, &set)) processors.push_back(i);
  return processors;
}

void set_affinity(const std::vector<int>& processors) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (int i : processors) CPU_SET(i, &set);
  // A processor that has been taken away meanwhile: the thread goes where the system puts it.
  [[maybe_unused]] const int failed = ::sched_setaffinity(0, sizeof set, &set);
}

// The first hardware thread of the processor's core, itself where the system does not tell.
int core_of(int processor) {
  int first = processor;
  std::ifstream(folder_of(processor) + "/topology/thread_siblings_list") >> first;
  return first;
}

// The folder's lock: everybody can open it, and the system ends it with the process.
FileDescriptor try_lock(int processor) {
  FileDescriptor folder(::open(folder_of(processor).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.valid() && ::flock(folder.get(), LOCK_EX | LOCK_NB) != 0) return {};
  return folder;
}

}  // namespace

std::vector<int> usable_processors() {
  std::vector<int> processors = affinity();
  std::ranges::stable_partition(processors, [](int p) { return core_of(p) == p; });
  return processors;
}

Pinning Pinning::claim(int threads, int ranks_on_host) {
  Pinning claimed;
  const std::vector<int> usable = usable_processors();
  // Who was confined to some of the host's processors may have them for itself.
  const bool confined = int64_t(usable.size()) < ::sysconf(_SC_NPROCESSORS_ONLN);
  if (int(usable.size()) < (confined ? threads : threads * ranks_on_host)) return claimed;
  for (int processor : usable) {
    FileDescriptor lock = try_lock(processor);
    if (!lock.valid()) continue;
    claimed.processors_.push_back(processor);
    claimed.locks_.push_back(std::move(lock));
    if (int(claimed.processors_.size()) == threads) return claimed;
  }
  return {};
}

void Pinning::pin_pool(ThreadPool& threads) const {
  if (!pinned()) return;
  threads.run([&](int thread) {
    if (thread > 0) set_affinity({processors_[size_t(thread)]});
  });
}

void Pinning::pin_step_thread() const {
  if (pinned()) set_affinity({processors_[0]});
}

Pinning::Confined::Confined(const Pinning& pinning) {
  if (!pinning.pinned()) return;
  before_ = affinity();
  set_affinity(pinning.processors());
}

Pinning::Confined::~Confined() {
  if (!before_.empty()) set_affinity(before_);
}

}  // namespace cohort
