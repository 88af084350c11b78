// SPDX-License-Identifier: Apache-2.0
// The tools of compute-sanitizer on this program's own parts with tiny shapes.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/check.h"
#include "tools/gpu_check/child.h"
#include "tools/gpu_check/parts.h"

namespace cohort::gpu_check {
namespace {

namespace fs = std::filesystem;

// Of the PATH, or of the toolkit.
std::string find_tool() {
  const char* path = std::getenv("PATH");
  const char* toolkit = std::getenv("CUDA_HOME");
  std::string folders = path != nullptr ? path : "";
  const std::string home = toolkit != nullptr ? toolkit : "/usr/local/cuda";
  folders += concat(":", home, "/bin:", home, "/compute-sanitizer");
  for (size_t at = 0; at <= folders.size();) {
    const size_t end = std::min(folders.find(':', at), folders.size());
    const fs::path candidate = fs::path(folders.substr(at, end - at)) / "compute-sanitizer";
    std::error_code error;
    if (fs::is_regular_file(candidate, error)) return candidate;
    at = end + 1;
  }
  return "";
}

// What the tool says in the end, as "ERROR SUMMARY: 0 errors".
std::string summary_of(const std::string& log) {
  std::ifstream file(log);
  std::string last;
  for (std::string line; std::getline(file, line);)
    if (line.find("SUMMARY") != std::string::npos) last = line;
  return last;
}

void run_tool(Report& report, const std::string& program, const std::string& tool,
              const std::string& part) {
  const std::string shape = concat("part ", part, ", tiny");
  if (report.late(tool, shape)) return;
  const Settings& s = report.settings();
  const std::string folder = concat(s.folder, "/", tool, "_", part), log = folder + ".log";
  fs::create_directories(folder);
  const Deadline end(s.end);
  const ChildEnd ended =
      run_command({program, "--tool", tool, "--error-exitcode", "99", own_path(), "--out", folder,
                   "--tiny", "--child", std::to_string(int(seconds(end.left())) + 1), part},
                  {}, log, end.left());
  report.pass(tool, shape, ended.well,
              ended.well ? summary_of(log) : concat(ended.text, "; see ", log));
}

}  // namespace

void run_sanitizer(Report& report) {
  const std::string program = find_tool();
  if (program.empty()) {
    report.note("compute-sanitizer", "", "not found");
    return;
  }
  for (const char* part : {"kernels", "engine"})
    for (const char* tool : {"memcheck", "racecheck", "synccheck"})
      run_tool(report, program, tool, part);
}

}  // namespace cohort::gpu_check
