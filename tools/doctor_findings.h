// SPDX-License-Identifier: Apache-2.0
// What `cohort doctor` looks at. Each finding is one line.
#pragma once
#include <string>
#include <vector>

#include "tools/probe/host_facts.h"

namespace cohort {

// note: it works, but could be faster or is worth knowing. problem: a cluster would not start.
enum class Grade { ok, note, problem };

struct Finding {
  Grade grade = Grade::ok;
  std::string subject;  // a word or two
  std::string text;     // what was found; where it is not ok, what to do
};

// Instruction sets: what the processor has, what would run, and what COHORT_ISA says.
std::vector<Finding> find_instruction_sets();
// Processors, memory, caches and pages, as told by the host.
std::vector<Finding> find_host(const HostFacts& facts);
// GPUs that this build can use, or that it cannot.
std::vector<Finding> find_gpus();
// Limits of this process: locked memory, open files, shared memory.
std::vector<Finding> find_limits();
// mpirun, and the programs beside this one.
std::vector<Finding> find_programs();

}  // namespace cohort
