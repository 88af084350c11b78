// SPDX-License-Identifier: Apache-2.0
// What Linux says of the host in /proc and /sys. What is not told is 0 or empty.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace cohort {

struct CacheFacts {
  int level = 0;
  std::string type;   // "Data", "Instruction", "Unified"
  int64_t bytes = 0;  // of one
  int sharers = 0;    // processors that one serves
  int count = 0;      // of them, for the processors that this process may use
};

struct HostFacts {
  std::string processor;           // "AMD EPYC 9654 96-Core Processor"
  std::vector<int> allowed;        // processors that this process may use, ascending
  int online = 0;                  // processors of the host
  int cores = 0;                   // physical ones behind `allowed`
  double quota = 0;                // processors' worth of time that a control group allows; 0: all
  std::vector<CacheFacts> caches;  // of the first allowed processor, without those of instructions
  int64_t memory = 0, available = 0;  // bytes
  int64_t memory_limit = 0;           // of a control group; 0: none
  std::string huge_pages;             // "always", "madvise" or "never"

  // Of all caches of a level that the allowed processors use; 0: there is none.
  int64_t cache_bytes(int level) const;
  int64_t last_level_bytes() const;
};

// root: where /proc and /sys lie; for tests. allowed: by default those of this process.
HostFacts read_host_facts(const std::string& root = "", std::vector<int> allowed = {});

// "0-3,8" as numbers; what cannot be read ends the list.
std::vector<int> parse_cpu_list(const std::string& text);

}  // namespace cohort
