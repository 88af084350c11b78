// SPDX-License-Identifier: Apache-2.0
#include "comm/shm.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "base/check.h"
#include "base/file_descriptor.h"
#include "comm/shared_communicator.h"

namespace cohort {
namespace {

Status failed(const std::string& what) { return unavailable(what + ": " + std::strerror(errno)); }

class Mapping {
 public:
  Mapping(void* data, int64_t bytes) : data_(data), bytes_(bytes) {}
  ~Mapping() { ::munmap(data_, size_t(bytes_)); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  void* data_;
  int64_t bytes_;
};

Result<std::shared_ptr<Mapping>> map(const FileDescriptor& file, int64_t bytes) {
  void* data = ::mmap(nullptr, size_t(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (data == MAP_FAILED) return failed("cannot map shared memory");
  return std::make_shared<Mapping>(data, bytes);
}

// What the members tell each other: each its process, the first also the memory.
struct Offer {
  pid_t pid = 0;
  int file = -1;
  uint64_t cookie = 0;
};

std::string to_text(const Offer& offer) {
  return concat(offer.pid, " ", offer.file, " ", offer.cookie);
}

Result<Offer> parse_offer(const std::string& text, const std::string& peer) {
  std::istringstream in(text);
  Offer offer;
  if (in >> offer.pid >> offer.file >> offer.cookie && offer.pid > 0) return offer;
  return unavailable(peer + " offers no shared memory: " + text);
}

class ProcessWatch : public PeerWatch {
 public:
  explicit ProcessWatch(const std::vector<Offer>& peers) {
    for (const Offer& peer : peers) {
      Process process{peer.pid, FileDescriptor(int(::syscall(SYS_pidfd_open, peer.pid, 0))), false};
      process.gone = !process.handle.valid() && errno == ESRCH;
      processes_.push_back(std::move(process));
    }
  }

  bool gone(int peer) const override {
    const Process& process = processes_[size_t(peer)];
    if (process.gone) return true;
    // Readable once the process has ended, also while its parent has not collected it.
    pollfd poll_for{process.handle.get(), POLLIN, 0};
    if (process.handle.valid()) return ::poll(&poll_for, 1, 0) > 0;
    return ::kill(process.pid, 0) != 0 && errno == ESRCH;  // kernels without pidfd
  }

 private:
  struct Process {
    pid_t pid;
    FileDescriptor handle;
    bool gone;
  };
  std::vector<Process> processes_;
};

Result<FileDescriptor> create_memory(const GroupInfo& info, Offer& offer) {
  FileDescriptor file(::memfd_create("cohort group", MFD_CLOEXEC));
  if (!file.valid()) return failed("cannot create shared memory");
  if (::ftruncate(file.get(), SharedRegion::bytes_for(info.size())) != 0)
    return failed("cannot size shared memory");
  if (::getrandom(&offer.cookie, sizeof offer.cookie, 0) != sizeof offer.cookie)
    return failed("getrandom");
  offer.file = file.get();
  return file;
}

Result<FileDescriptor> open_memory(const GroupInfo& info, const Offer& offer) {
  const std::string path = concat("/proc/", offer.pid, "/fd/", offer.file);
  FileDescriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!file.valid()) return failed("cannot open the memory of " + info.peer(0) + " at " + path);
  struct stat found;
  if (::fstat(file.get(), &found) != 0 || found.st_size != SharedRegion::bytes_for(info.size()))
    return unavailable(path + " is not the memory of " + info.name);
  return file;
}

// Maps the memory: what one member can do without the others' answer.
Result<std::shared_ptr<Mapping>> attach(const GroupInfo& info, const FileDescriptor& own,
                                        const Offer& offer) {
  const int64_t bytes = SharedRegion::bytes_for(info.size());
  if (info.rank == 0) return map(own, bytes);
  COHORT_ASSIGN_OR_RETURN(const FileDescriptor file, open_memory(info, offer));
  COHORT_ASSIGN_OR_RETURN(std::shared_ptr<Mapping> mapping, map(file, bytes));
  if (SharedRegion(mapping->data(), info.size()).header().cookie != offer.cookie)
    return unavailable("the memory that " + info.peer(0) + " offers is not that of " + info.name);
  return mapping;
}

}  // namespace

Result<std::unique_ptr<Communicator>> make_shm_communicator(GroupInfo info, TextExchange exchange) {
  COHORT_ASSIGN_OR_RETURN(std::unique_ptr<RoundCommunicator> made,
                          make_shm_part(std::move(info), exchange));
  return std::unique_ptr<Communicator>(std::move(made));
}

Result<std::unique_ptr<RoundCommunicator>> make_shm_part(GroupInfo info, TextExchange exchange) {
  Offer mine{.pid = ::getpid()};
  FileDescriptor own;
  std::shared_ptr<Mapping> mapping;
  Status status;
  if (info.rank == 0) {
    Result<FileDescriptor> created = create_memory(info, mine);
    if (created.ok()) own = std::move(*created);
    Result<std::shared_ptr<Mapping>> mapped =
        created.ok() ? attach(info, own, mine) : created.status();
    if (mapped.ok()) {
      mapping = *mapped;
      RegionHeader& header = SharedRegion(mapping->data(), info.size()).header();
      header = {mine.cookie, info.size(), SharedRegion::bytes_for(info.size())};
    }
    status = mapped.status();
  }
  COHORT_ASSIGN_OR_RETURN(const std::vector<std::string> texts,
                          exchange(status.ok() ? to_text(mine) : status.message()));
  std::vector<Offer> offers;
  for (int r = 0; r < info.size(); r++) {
    COHORT_ASSIGN_OR_RETURN(const Offer offer, parse_offer(texts[size_t(r)], info.peer(r)));
    offers.push_back(offer);
  }
  auto watch = std::make_unique<ProcessWatch>(offers);
  if (info.rank != 0) {
    Result<std::shared_ptr<Mapping>> mapped = attach(info, own, offers[0]);
    if (mapped.ok()) mapping = *mapped;
    status = mapped.status();
  }
  COHORT_ASSIGN_OR_RETURN(const std::vector<std::string> failures, exchange(status.message()));
  for (int r = 0; r < info.size(); r++)
    if (!failures[size_t(r)].empty())
      return unavailable(info.name + ": " + info.peer(r) + ": " + failures[size_t(r)]);
  const SharedRegion region(mapping->data(), info.size());
  return std::unique_ptr<RoundCommunicator>(std::make_unique<SharedCommunicator>(
      std::move(info), region, std::move(mapping), std::move(watch)));
}

std::string host_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::array<char, 64> space{};
  if (boot.empty() || ::readlink("/proc/self/ns/pid", space.data(), space.size() - 1) <= 0) {
    uint64_t unique = 0;
    [[maybe_unused]] const ssize_t n = ::getrandom(&unique, sizeof unique, 0);
    return concat("unknown ", unique);
  }
  return boot + " " + space.data();
}

}  // namespace cohort
