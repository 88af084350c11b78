// SPDX-License-Identifier: Apache-2.0
#include "tools/trace_command.h"

#include <CLI/CLI.hpp>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "tools/trace_merge.h"

namespace cohort {
namespace {

struct TraceMergeOptions {
  std::vector<std::string> files;
  std::string output = "trace.json";
};

Status merge(const TraceMergeOptions& options) {
  std::vector<std::string> texts;
  for (const std::string& path : options.files) {
    std::ifstream file(path, std::ios::binary);
    if (!file) return not_found("cannot read " + path);
    texts.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  COHORT_ASSIGN_OR_RETURN(const std::string merged, merge_traces(texts, options.files));
  std::ofstream out(options.output, std::ios::binary | std::ios::trunc);
  out << merged;
  out.close();
  if (!out) return unavailable("cannot write " + options.output);
  std::cout << options.output << ": open it in ui.perfetto.dev or chrome://tracing\n";
  return {};
}

}  // namespace

void add_trace_command(CLI::App& app, int& exit_code) {
  CLI::App& trace = *app.add_subcommand(
      "trace", "What ranks computed and sent when, as they wrote it with --trace FILE");
  trace.require_subcommand(1);
  CLI::App& command =
      *trace.add_subcommand("merge", "Make one trace of those of several ranks, on one time line");
  const auto options = std::make_shared<TraceMergeOptions>();
  command.add_option("files", options->files, "FILE.0.json FILE.1.json ...")->required();
  command.add_option("-o,--output", options->output, "Where to write it")->capture_default_str();
  command.callback([options, &exit_code] {
    const Status status = merge(*options);
    if (status.ok()) return;
    std::cerr << status.message() << "\n";
    exit_code = 1;
  });
}

}  // namespace cohort
