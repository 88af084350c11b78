// SPDX-License-Identifier: Apache-2.0
#include "tools/doctor_findings.h"

#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "base/isa_option.h"
#include "base/open_device.h"
#include "tools/process.h"

namespace cohort {
namespace {

std::string gib(int64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f GiB", double(bytes) / double(1 << 30));
  return text;
}

std::string kib(int64_t bytes) {
  return bytes >= 1 << 20 ? concat(bytes >> 20, " MiB") : concat(bytes >> 10, " KiB");
}

Finding processors(const HostFacts& facts) {
  const int allowed = int(facts.allowed.size());
  std::string text =
      concat(facts.processor.empty() ? std::string() : facts.processor + ": ", allowed, " of ",
             std::max(facts.online, allowed), " processors may be used, on ", facts.cores,
             facts.cores == 1 ? " core" : " cores");
  if (facts.quota > 0 && facts.quota < allowed) {
    std::ostringstream quota;
    quota << facts.quota;
    return {Grade::note, "processors",
            text + concat("; a control group allows the time of ", quota.str(),
                          " only: give ranks no more threads than that, or raise its cpu.max")};
  }
  if (facts.cores < allowed)
    return {Grade::note, "processors",
            text + concat(": ranks compute best with --threads that are ", facts.cores,
                          " in all, one a core")};
  return {Grade::ok, "processors", text};
}

Finding memory(const HostFacts& facts) {
  const std::string text = concat(gib(facts.memory), ", ", gib(facts.available), " available");
  if (facts.memory_limit > 0 && facts.memory_limit < facts.memory)
    return {Grade::note, "memory",
            text + concat("; a control group allows ", gib(facts.memory_limit),
                          ": choose --kv-memory accordingly, or raise its memory.max")};
  return {Grade::ok, "memory", text};
}

Finding huge_pages(const HostFacts& facts) {
  if (facts.huge_pages == "always" || facts.huge_pages == "madvise")
    return {Grade::ok, "huge pages", "transparent_hugepage is " + facts.huge_pages};
  return {
      Grade::note, "huge pages",
      concat("transparent_hugepage is ", facts.huge_pages.empty() ? "not known" : facts.huge_pages,
             ", so weights lie in small pages and are read more slowly: as root, echo madvise "
             "> /sys/kernel/mm/transparent_hugepage/enabled")};
}

Finding caches(const HostFacts& facts) {
  std::string text;
  for (const CacheFacts& cache : facts.caches)
    text += concat(text.empty() ? "" : ", ", "level ", cache.level, " ", kib(cache.bytes), " for ",
                   cache.sharers, cache.sharers == 1 ? " processor" : " processors",
                   cache.count > 1 ? concat(" (", cache.count, " of them)") : "");
  if (text.empty()) return {Grade::note, "caches", "the system does not tell of any"};
  return {Grade::ok, "caches", text};
}

// The program on PATH, or "".
std::string find_on_path(const std::string& program) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string file = (folder.empty() ? "." : folder) + "/" + program;
    if (access(file.c_str(), X_OK) == 0 && !std::filesystem::is_directory(file)) return file;
  }
  return {};
}

// The first line that a program prints; "" where it does not end in time or well.
std::string first_line_of(const Command& command) {
  constexpr Duration kPatience = std::chrono::seconds(10);
  auto process = Process::start(command);
  if (!process.ok()) return {};
  const auto exit = process->wait(kPatience);
  std::string first;
  process->read_lines([&](const std::string& line) {
    if (first.empty()) first = line;
  });
  return exit && exit->ok() ? first : std::string();
}

Finding mpi() {
  const std::string advice = "install Open MPI 4, which `cohort up` starts ranks with";
  const std::string path = find_on_path("mpirun");
  if (path.empty()) return {Grade::problem, "mpi", "there is no mpirun on PATH: " + advice};
  const std::string version = first_line_of({{path, "--version"}, {}});
  if (version.empty()) return {Grade::problem, "mpi", path + " --version fails: " + advice};
  if (version.find("Open MPI") == std::string::npos)
    return {Grade::problem, "mpi",
            concat(path, " is ", version, ", whose options differ: ", advice)};
  return {Grade::ok, "mpi", concat(path, ", ", version)};
}

Finding program(const std::string& name) {
  const std::string path = program_folder() + "/" + name;
  if (access(path.c_str(), X_OK) == 0) return {Grade::ok, "program", path};
  return {Grade::problem, "program",
          concat(path,
                 " is not there: `cohort up` needs it beside this program; build it, with "
                 "gRPC and CLI11 installed")};
}

Finding locked_memory() {
  rlimit limit{};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  if (limit.rlim_cur == RLIM_INFINITY) return {Grade::ok, "locked memory", "no limit"};
  return {Grade::ok, "locked memory",
          concat(kib(int64_t(limit.rlim_cur)),
                 " at most; ranks on one host or over TCP need none, RDMA needs ulimit -l "
                 "unlimited")};
}

Finding open_files() {
  constexpr rlim_t kEnough = 1024;
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur >= kEnough) return {Grade::ok, "open files", concat("up to ", limit.rlim_cur)};
  return {Grade::note, "open files",
          concat("up to ", limit.rlim_cur, ", and each client takes one: ulimit -n ", kEnough)};
}

// Groups of ranks share memory without a file system; Open MPI keeps its own there.
Finding shared_memory() {
  constexpr int64_t kEnough = int64_t(64) << 20;
  struct statvfs about {};
  if (statvfs("/dev/shm", &about) != 0)
    return {Grade::note, "shared memory",
            "there is no /dev/shm, which MPI uses between ranks of a host: mount a tmpfs there"};
  const int64_t free = int64_t(about.f_bavail) * int64_t(about.f_frsize);
  if (free < kEnough)
    return {Grade::note, "shared memory",
            concat("/dev/shm has ", kib(free),
                   " free, which may be too little for MPI: enlarge "
                   "it (containers: --shm-size 1g)")};
  return {Grade::ok, "shared memory", concat("/dev/shm has ", gib(free), " free")};
}

}  // namespace

std::vector<Finding> find_instruction_sets() {
  std::string has;
  Isa best = Isa::portable;
  for (const Isa isa : kIsas) {
    if (!supported(isa)) continue;
    has += concat(has.empty() ? "" : ", ", name(isa));
    best = isa;
  }
  const char* variable = std::getenv("COHORT_ISA");
  const Result<Isa> chosen = choose_isa("");
  if (!chosen.ok())
    return {{Grade::problem, "instructions",
             concat("this processor has ", has, ", but ", chosen.status().message(),
                    ": unset COHORT_ISA, or set it to one of these")}};
  const std::string text = concat("this processor has ", has, "; ranks use ", name(*chosen));
  if (variable == nullptr || *variable == '\0') return {{Grade::ok, "instructions", text}};
  const std::string why = concat(text, ", as COHORT_ISA says");
  if (*chosen == best) return {{Grade::ok, "instructions", why}};
  return {{Grade::note, "instructions",
           concat(why, ", though ", name(best), " is faster: unset COHORT_ISA")}};
}

std::vector<Finding> find_host(const HostFacts& facts) {
  return {processors(facts), memory(facts), huge_pages(facts), caches(facts)};
}

std::vector<Finding> find_gpus() {
  const int count = count_cuda_devices();
  std::vector<Finding> findings;
  for (int i = 0; i < count; i++) {
    const auto device = open_cuda_device(i);
    findings.push_back(device.ok()
                           ? Finding{Grade::ok, "gpu",
                                     concat((*device)->name(), ", ", gib((*device)->memory().free),
                                            " of ", gib((*device)->memory().total), " free")}
                           : Finding{Grade::note, "gpu", device.status().message()});
  }
  if (count > 0) return findings;
  const bool present = access("/dev/nvidiactl", F_OK) == 0;
  const std::string why = open_cuda_device(0).status().message();
  if (present)
    return {{Grade::note, "gpu",
             concat("this host has an NVIDIA driver, but no GPU can be used: ", why,
                    "; ranks can compute on CPUs")}};
  return {{Grade::ok, "gpu", "none: ranks compute on CPUs"}};
}

std::vector<Finding> find_limits() { return {shared_memory(), locked_memory(), open_files()}; }

std::vector<Finding> find_programs() {
  return {mpi(), program("cohort-worker"), program("cohort-coordinator")};
}

}  // namespace cohort
