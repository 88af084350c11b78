// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_emulation/nccl_world.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>

namespace emu::nccl {
namespace {
// Of this process: the worlds its ranks share, and the descriptors of ids it made.
struct Known {
  std::mutex mutex;
  std::map<std::string, std::weak_ptr<World>> worlds;
  std::map<std::string, int> made;
  int next = 0;
};
Known& known() {
  static Known* const k = new Known;  // ranks may outlive static destructors
  return *k;
}

struct Name {
  long pid = 0;
  int fd = -1;
  char nonce[64] = {};
};
bool parse(const ncclUniqueId& id, Name* out) {
  char text[NCCL_UNIQUE_ID_BYTES + 1] = {};
  std::memcpy(text, id.internal, NCCL_UNIQUE_ID_BYTES);
  return std::sscanf(text, "emulated pid %ld fd %d nonce %63s", &out->pid, &out->fd, out->nonce) ==
         3;
}

std::size_t page(std::size_t n) { return (n + 4095) / 4096 * 4096; }

// State letter and start time of a process (proc(5), /proc/pid/stat, fields 3 and 22).
bool process(long pid, char* state, std::uint64_t* started) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  if (!std::getline(file, text)) return false;
  const auto end = text.rfind(')');  // the name may hold anything
  if (end == std::string::npos) return false;
  unsigned long long ticks = 0;
  if (std::sscanf(
          text.c_str() + end + 1,
          " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %llu", state,
          &ticks) != 2)
    return false;
  *started = ticks;
  return true;
}

int open_memory(const Name& name, std::string* error) {
  const std::string path = "/proc/" + std::to_string(name.pid) + "/fd/" + std::to_string(name.fd);
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  char nonce[64] = {};
  if (fd >= 0 && ::pread(fd, nonce, sizeof nonce, 0) == sizeof nonce &&
      std::strcmp(nonce, name.nonce) == 0)
    return fd;
  if (fd >= 0) ::close(fd);
  *error = "process " + std::to_string(name.pid) +
           ", which made the unique id, has ended or no longer has it";
  return -1;
}
void forget(const std::string& nonce) {
  auto& k = known();
  const std::lock_guard guard(k.mutex);
  const auto made = k.made.find(nonce);
  if (made == k.made.end()) return;
  ::close(made->second);
  k.made.erase(made);
}
}  // namespace

const char* name_of(Kind kind) {
  static const char* const names[] = {"ncclAllReduce", "ncclReduce",        "ncclBroadcast",
                                      "ncclAllGather", "ncclReduceScatter", "ncclAlltoAll",
                                      "ncclSend",      "ncclRecv"};
  return names[int(kind)];
}

std::string describe(const Call& call) {
  static const char* const types[] = {"int8",    "uint8",    "int32",      "uint32",
                                      "int64",   "uint64",   "float16",    "float32",
                                      "float64", "bfloat16", "float8e4m3", "float8e5m2"};
  static const char* const ops[] = {"sum", "prod", "max", "min", "avg"};
  std::string text = std::string(name_of(call.kind)) + " of " + std::to_string(call.count) + " x " +
                     types[call.type];
  if (call.op >= 0) text += std::string(", ") + ops[call.op];
  if (call.kind == Kind::reduce || call.kind == Kind::broadcast)
    text += ", root " + std::to_string(call.root);
  return text;
}

std::chrono::milliseconds timeout() {
  const char* text = std::getenv("COHORT_EMULATED_NCCL_TIMEOUT");
  const double seconds = text != nullptr ? std::atof(text) : 60;
  return std::chrono::milliseconds(std::int64_t(1000 * (seconds > 0 ? seconds : 60)));
}

World::World(int fd, int ranks) : ranks_(ranks), dead_(ranks) {
  slots_at_ = page(sizeof(Header));
  channels_at_ = slots_at_ + page(sizeof(Slot) * ranks);
  data_at_ = channels_at_ + page(sizeof(Channel) * ranks * ranks);
  bytes_ = data_at_ + ranks * kRegion + std::size_t(ranks) * ranks * kChannelRegion;
  if (::ftruncate(fd, off_t(bytes_)) != 0) return;
  void* p = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (p == MAP_FAILED) return;
  ::madvise(p, bytes_, MADV_DONTDUMP);
  base_ = static_cast<char*>(p);
}

World::~World() {
  if (base_ != nullptr) ::munmap(base_, bytes_);
}

std::shared_ptr<World> World::attach(const ncclUniqueId& id, int ranks, std::string* error) {
  Name name;
  if (!parse(id, &name)) return *error = "this is no unique id of ncclGetUniqueId", nullptr;
  auto& k = known();
  const std::lock_guard guard(k.mutex);
  std::shared_ptr<World> world = k.worlds[name.nonce].lock();
  if (!world) {
    const int fd = open_memory(name, error);
    if (fd < 0) return nullptr;
    world = std::make_shared<World>(fd, ranks);
    ::close(fd);
    if (!world->mapped()) return *error = "cannot map the ranks' shared memory", nullptr;
    k.worlds[name.nonce] = world;
  }
  std::uint32_t expected = 0;
  if (!world->header().ranks.compare_exchange_strong(expected, std::uint32_t(ranks)) &&
      expected != std::uint32_t(ranks)) {
    *error = "another rank gave " + std::to_string(expected) + " ranks for this unique id, this " +
             std::to_string(ranks);
    return nullptr;
  }
  return world;
}

Slot& World::slot(int rank) const { return reinterpret_cast<Slot*>(base_ + slots_at_)[rank]; }
Channel& World::channel(int from, int to) const {
  return reinterpret_cast<Channel*>(base_ + channels_at_)[from * ranks_ + to];
}
char* World::region(int rank) const { return base_ + data_at_ + rank * kRegion; }
char* World::channel_region(int from, int to) const {
  return region(ranks_) + std::size_t(from * ranks_ + to) * kChannelRegion;
}

bool World::take_rank(int rank, int device) {
  static std::mutex mutex;  // two threads of a process; processes do not share a rank by chance
  const std::lock_guard guard(mutex);
  Slot& s = slot(rank);
  if (s.life != Life::absent) return false;
  char state;
  s.pid = ::getpid();
  s.device = device;
  process(s.pid, &state, &s.started);
  s.life = Life::attached;
  return true;
}

bool World::complete() const {
  for (int r = 0; r < ranks_; ++r)
    if (slot(r).life == Life::absent) return false;
  return true;
}

bool World::external() const {
  for (int r = 0; r < ranks_; ++r)
    if (slot(r).life == Life::absent || slot(r).pid != ::getpid()) return true;
  return false;
}

std::string World::lost(int rank, Clock::time_point now) {
  if (now - looked_ > std::chrono::milliseconds(50)) {
    looked_ = now;
    for (int r = 0; r < ranks_; ++r) {
      const Slot& s = slot(r);
      char state = 0;
      std::uint64_t started = 0;
      if (s.life != Life::attached || s.pid == ::getpid()) continue;
      dead_[r] =
          !process(s.pid, &state, &started) || state == 'Z' || state == 'X' || started != s.started;
    }
  }
  if (slot(rank).life == Life::aborted) return "rank " + std::to_string(rank) + " aborted";
  if (dead_[rank] && slot(rank).life == Life::attached)
    return "the process of rank " + std::to_string(rank) + " has ended";
  return "";
}

ncclResult_t create_id(ncclUniqueId* id) {
  auto& k = known();
  const std::lock_guard guard(k.mutex);
  const int fd = ::memfd_create("emulated-nccl", MFD_CLOEXEC);
  if (fd < 0) return ncclSystemError;
  Name name;
  std::snprintf(name.nonce, sizeof name.nonce, "%ld-%d-%lld", long(::getpid()), k.next++,
                static_cast<long long>(Clock::now().time_since_epoch().count()));
  if (::pwrite(fd, name.nonce, sizeof name.nonce, 0) != sizeof name.nonce) {
    ::close(fd);
    return ncclSystemError;
  }
  std::memset(id, 0, sizeof *id);
  std::snprintf(id->internal, sizeof id->internal, "emulated pid %ld fd %d nonce %s",
                long(::getpid()), fd, name.nonce);
  k.made[name.nonce] = fd;
  return ncclSuccess;
}

void discard_id(const ncclUniqueId& id) {
  Name name;
  if (parse(id, &name)) forget(name.nonce);
}
void forget_id(const World& world) { forget(world.header().nonce); }

}  // namespace emu::nccl
