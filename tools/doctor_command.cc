// SPDX-License-Identifier: Apache-2.0
#include "tools/doctor_command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <memory>

#include "tools/bench/machine_report.h"
#include "tools/doctor_findings.h"

namespace cohort {
namespace {

using bench::json;

struct DoctorOptions {
  bool probe = false, as_json = false;
  int threads = 0;
};

const char* name(Grade grade) {
  return grade == Grade::ok ? "ok" : grade == Grade::note ? "note" : "problem";
}

std::vector<Finding> find_all() {
  std::vector<Finding> all;
  for (const auto& findings : {find_instruction_sets(), find_host(read_host_facts()), find_gpus(),
                               find_programs(), find_limits()})
    all.insert(all.end(), findings.begin(), findings.end());
  return all;
}

// What each instruction set that the processor has can do; memory and placement are of the fastest.
std::vector<MachineLimits> probe_all(int threads) {
  std::vector<MachineLimits> probes;
  Isa best = Isa::portable;
  for (const Isa isa : kIsas)
    if (supported(isa)) best = isa;
  probes.push_back(probe_machine(best, threads));
  for (const Isa isa : kIsas)
    if (supported(isa) && isa != best)
      probes.push_back({.threads = threads,
                        .memory = {},
                        .cache = {},
                        .peaks = probe_peaks(isa, threads),
                        .placement = {}});
  return probes;
}

json to_json(const std::vector<Finding>& findings, const std::vector<MachineLimits>& probes) {
  json out = {{"findings", json::array()}};
  for (const Finding& f : findings)
    out["findings"].push_back({{"grade", name(f.grade)}, {"subject", f.subject}, {"text", f.text}});
  if (probes.empty()) return out;
  out["machine"] = bench::to_json(probes.front());
  out["peaks"] = json::array();
  for (const MachineLimits& probe : probes) out["peaks"].push_back(bench::to_json(probe.peaks));
  return out;
}

void print(const std::vector<Finding>& findings, const std::vector<MachineLimits>& probes) {
  for (const Finding& f : findings) {
    const std::string grade = name(f.grade);
    std::cout << grade << std::string(9 - grade.size(), ' ') << f.subject
              << std::string(f.subject.size() < 15 ? 15 - f.subject.size() : 1, ' ') << f.text
              << '\n';
  }
  if (probes.empty()) return;
  std::cout << '\n' << bench::to_text(probes.front());
  for (size_t i = 1; i < probes.size(); i++) std::cout << bench::to_text(probes[i].peaks);
}

int run_doctor(const DoctorOptions& options) {
  const std::vector<Finding> findings = find_all();
  const int processors = std::max<int>(1, int(read_host_facts().allowed.size()));
  const auto probes = options.probe ? probe_all(options.threads > 0 ? options.threads : processors)
                                    : std::vector<MachineLimits>();
  if (options.as_json)
    std::cout << to_json(findings, probes).dump(2, ' ', false, json::error_handler_t::replace)
              << '\n';
  else
    print(findings, probes);
  const auto stops = [](const Finding& f) { return f.grade == Grade::problem; };
  return std::ranges::any_of(findings, stops) ? 1 : 0;
}

}  // namespace

void add_doctor_command(CLI::App& app, int& exit_code) {
  CLI::App& command = *app.add_subcommand(
      "doctor",
      "What this host offers, and what to do about what it lacks. Fails where a cluster could not "
      "start");
  const auto options = std::make_shared<DoctorOptions>();
  command.add_flag("--probe", options->probe,
                   "Measure memory, arithmetic and how two processors stand to each other");
  command
      .add_option("--threads", options->threads, "Of the measurement; by default all processors")
      ->check(CLI::Range(1, 1024));
  command.add_flag("--json", options->as_json, "as JSON");
  command.callback([options, &exit_code] { exit_code = run_doctor(*options); });
}

}  // namespace cohort
