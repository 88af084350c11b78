// SPDX-License-Identifier: Apache-2.0
#include "tools/probe/host_facts.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <set>

#include "base/check.h"

namespace cohort {
namespace {

std::string read_file(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::string first_line(const std::string& path) {
  const std::string text = read_file(path);
  return text.substr(0, text.find('\n'));
}

// 0 where there is no number.
int64_t number(const std::string& text) {
  int64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

// What follows "key   : " or "key:   " in a file of such lines.
std::string value_of(const std::string& text, const std::string& key) {
  size_t at = text.starts_with(key) ? 0 : text.find("\n" + key);
  if (at == std::string::npos) return {};
  at = text.find(':', at);
  if (at == std::string::npos) return {};
  at = text.find_first_not_of(" \t", at + 1);
  if (at == std::string::npos) return {};
  return text.substr(at, text.find('\n', at) - at);
}

// "1024K", "32M".
int64_t cache_size(const std::string& text) {
  const int64_t factor = text.ends_with('M') ? 1 << 20 : text.ends_with('K') ? 1 << 10 : 1;
  return number(text) * factor;
}

std::vector<int> allowed_here() {
  std::vector<int> allowed;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return allowed;
  for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
    if (CPU_ISSET(cpu, &set)) allowed.push_back(cpu);
  return allowed;
}

std::string cpu_folder(const std::string& root, int cpu) {
  return concat(root, "/sys/devices/system/cpu/cpu", cpu);
}

// How many different lists the processors name in a file of theirs. A processor that names none is
// one of its own.
int distinct(const std::string& root, const std::vector<int>& cpus, const std::string& file) {
  std::set<std::string> lists;
  for (const int cpu : cpus) {
    const std::string list = first_line(cpu_folder(root, cpu) + file);
    lists.insert(list.empty() ? concat("cpu ", cpu) : list);
  }
  return int(lists.size());
}

void read_caches(const std::string& root, HostFacts& facts) {
  if (facts.allowed.empty()) return;
  for (int index = 0; index < 10; index++) {
    const std::string place = concat("/cache/index", index);
    const std::string folder = cpu_folder(root, facts.allowed.front()) + place;
    const std::string level = first_line(folder + "/level"), type = first_line(folder + "/type");
    if (level.empty()) return;
    if (type == "Instruction") continue;
    const auto sharers = parse_cpu_list(first_line(folder + "/shared_cpu_list"));
    facts.caches.push_back({.level = int(number(level)),
                            .type = type,
                            .bytes = cache_size(first_line(folder + "/size")),
                            .sharers = std::max<int>(1, int(sharers.size())),
                            .count = distinct(root, facts.allowed, place + "/shared_cpu_list")});
  }
}

// Control groups of version 2 are told where this process sees its own as the root.
void read_limits(const std::string& root, HostFacts& facts) {
  const std::string cpu = first_line(root + "/sys/fs/cgroup/cpu.max");
  const size_t space = cpu.find(' ');
  if (space != std::string::npos && number(cpu.substr(space + 1)) > 0)
    facts.quota = double(number(cpu)) / double(number(cpu.substr(space + 1)));
  facts.memory_limit = number(first_line(root + "/sys/fs/cgroup/memory.max"));
}

void read_memory(const std::string& root, HostFacts& facts) {
  const std::string text = read_file(root + "/proc/meminfo");
  facts.memory = number(value_of(text, "MemTotal")) << 10;
  facts.available = number(value_of(text, "MemAvailable")) << 10;
  const std::string pages = first_line(root + "/sys/kernel/mm/transparent_hugepage/enabled");
  const size_t open = pages.find('['), close = pages.find(']');
  if (open != std::string::npos && close != std::string::npos && open < close)
    facts.huge_pages = pages.substr(open + 1, close - open - 1);
}

}  // namespace

std::vector<int> parse_cpu_list(const std::string& text) {
  std::vector<int> cpus;
  const char *at = text.data(), *end = at + text.size();
  while (at < end) {
    int first = 0;
    auto read = std::from_chars(at, end, first);
    if (read.ec != std::errc()) return cpus;
    int last = first;
    if (read.ptr < end && *read.ptr == '-') read = std::from_chars(read.ptr + 1, end, last);
    if (read.ec != std::errc() || last - first > 1 << 16) return cpus;
    for (int cpu = first; cpu <= last; cpu++) cpus.push_back(cpu);
    at = read.ptr + 1;
  }
  return cpus;
}

int64_t HostFacts::cache_bytes(int level) const {
  int64_t bytes = 0;
  for (const CacheFacts& cache : caches)
    if (cache.level == level) bytes += cache.bytes * cache.count;
  return bytes;
}

int64_t HostFacts::last_level_bytes() const {
  int last = 0;
  for (const CacheFacts& cache : caches) last = std::max(last, cache.level);
  return cache_bytes(last);
}

HostFacts read_host_facts(const std::string& root, std::vector<int> allowed) {
  HostFacts facts;
  facts.allowed = allowed.empty() ? allowed_here() : std::move(allowed);
  facts.processor = value_of(read_file(root + "/proc/cpuinfo"), "model name");
  facts.online = int(parse_cpu_list(first_line(root + "/sys/devices/system/cpu/online")).size());
  facts.cores = distinct(root, facts.allowed, "/topology/thread_siblings_list");
  read_caches(root, facts);
  read_limits(root, facts);
  read_memory(root, facts);
  return facts;
}

}  // namespace cohort
