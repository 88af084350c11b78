// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/kernel_bench.h"

#include <regex.h>

#include <algorithm>

#include "base/stream.h"
#include "tools/bench/kernel_case.h"
#include "tools/probe/host_facts.h"

namespace cohort::bench {
namespace {

// A single call may take so many times what is its case's share of the time.
constexpr double kPatience = 10;

// A group and which of its cases are wanted.
struct Chosen {
  CaseGroup group;
  std::vector<bool> wanted;
  int64_t count() const { return std::count(wanted.begin(), wanted.end(), true); }
};

// An extended regular expression of POSIX.
class Filter {
 public:
  explicit Filter(const std::string& text)
      : valid_(::regcomp(&expression_, text.c_str(), REG_EXTENDED | REG_NOSUB) == 0) {}
  ~Filter() {
    if (valid_) ::regfree(&expression_);
  }
  Filter(const Filter&) = delete;
  Filter& operator=(const Filter&) = delete;

  bool valid() const { return valid_; }
  bool matches(const std::string& name) const {
    return ::regexec(&expression_, name.c_str(), 0, nullptr, 0) == 0;
  }

 private:
  regex_t expression_{};
  const bool valid_;
};

Result<std::vector<Chosen>> choose(std::vector<CaseGroup> groups, const std::string& filter) {
  const Filter wanted(filter);
  if (!wanted.valid())
    return invalid_argument("--filter '" + filter + "' is not a regular expression");
  std::vector<Chosen> chosen;
  for (CaseGroup& group : groups) {
    Chosen one{std::move(group), {}};
    for (const std::string& name : one.group.names) one.wanted.push_back(wanted.matches(name));
    if (one.count() > 0) chosen.push_back(std::move(one));
  }
  if (chosen.empty()) return invalid_argument("no kernel's name matches --filter '" + filter + "'");
  return chosen;
}

std::vector<CaseGroup> all_groups(const CaseSetting& setting) {
  std::vector<CaseGroup> all;
  for (const auto make : {product_cases, attention_cases, row_cases, end_cases})
    for (CaseGroup& group : make(setting)) all.push_back(std::move(group));
  return all;
}

int64_t cold_bytes() {
  const HostFacts facts = read_host_facts();
  const int64_t wanted = std::max<int64_t>(2 * facts.last_level_bytes(), int64_t(64) << 20);
  return facts.available == 0 ? wanted : std::min(wanted, facts.available / 8);
}

class KernelBench {
 public:
  KernelBench(const KernelOptions& options, const MachineLimits& machine,
              const std::function<void(const KernelResult&)>& told)
      : machine_(machine), told_(told), end_(now() + options.seconds) {}

  void run(const std::vector<Chosen>& chosen) {
    for (const Chosen& one : chosen) left_ += one.count();
    for (const Chosen& one : chosen) run_group(one);
  }

 private:
  void run_group(const Chosen& chosen) {
    const std::vector<KernelCase> cases = chosen.group.make();
    double operation_seconds = 0;  // of the case before
    for (size_t i = 0; i < cases.size(); i++) {
      if (!chosen.wanted[i]) continue;
      const double operations = cases[i].demand.operations();
      KernelResult result = measure(cases[i], operations * operation_seconds);
      if (result.seconds && operations > 0) operation_seconds = result.seconds->median / operations;
      left_--;
      told_(result);
    }
  }

  // expected: seconds of one call, at most; 0: not known.
  KernelResult measure(const KernelCase& c, double expected) const {
    KernelResult result{.name = c.name, .demand = c.demand, .seconds = {}};
    const LeastTime least = least_time(c.demand, machine_);
    result.bound = least.bound;
    const double budget = std::max(end_ - now(), 0.0) / double(std::max<int64_t>(left_, 1));
    if (expected > kPatience * std::max(budget, 0.01)) {
      result.expected_seconds = expected;
      return result;
    }
    result.seconds = time_calls(c.run, budget, 1);
    result.fraction_of_bound = least.seconds / result.seconds->median;
    return result;
  }

  const MachineLimits& machine_;
  const std::function<void(const KernelResult&)>& told_;
  const double end_;
  int64_t left_ = 0;  // cases
};

}  // namespace

Status bench_kernels(const KernelOptions& options,
                     const std::function<void(const MachineLimits&)>& begin,
                     const std::function<void(const KernelResult&)>& told) {
  Stream stream(options.threads, options.isa);
  const CaseSetting setting{stream, cold_bytes()};
  COHORT_ASSIGN_OR_RETURN(const std::vector<Chosen> chosen,
                          choose(all_groups(setting), options.filter));
  const MachineLimits machine = probe_machine(options.isa, options.threads);
  begin(machine);
  KernelBench(options, machine, told).run(chosen);
  return {};
}

}  // namespace cohort::bench
