// SPDX-License-Identifier: Apache-2.0
// gpu_check [--out DIR] [--tiny] [--seconds N] [PART ...]
//
// Runs the parts (all of them unless some are named), each as a process of its own with a limit on
// its time; then prints one table and writes DIR/gpu_check.json. Ends with 0 where nothing failed,
// 1 where something did, 2 where there is no GPU or the arguments are wrong.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>

#include "base/open_device.h"
#include "tools/gpu_check/child.h"
#include "tools/gpu_check/parts.h"

namespace cohort::gpu_check {
namespace {

struct Part {
  const char* name;
  void (*run)(Report&);
  int seconds;  // it looks at the clock itself; it is killed a little later
};
constexpr Part kParts[] = {
    {"device", measure_device, 40},       {"kernels", check_kernels, 90},
    {"emulation", compare_emulation, 30}, {"engine", measure_engine, 150},
    {"speed", measure_speed, 120},        {"nccl", check_nccl, 120},
    {"sanitizer", run_sanitizer, 90},
};
constexpr int kGrace = 20;  // seconds from the end of a part's time to its kill

struct Arguments {
  Settings settings;
  int seconds = 440;  // for all parts together
  int child_seconds = 0;
  std::vector<std::string> parts;
};

const Part* find(const std::string& name) {
  for (const Part& part : kParts)
    if (name == part.name) return &part;
  return nullptr;
}

bool parse(int argc, char** argv, Arguments& a) {
  a.settings.folder = "gpu_check_results";
  for (int i = 1; i < argc; i++) {
    const std::string text = argv[i];
    const bool more = i + 1 < argc;
    if (text == "--tiny")
      a.settings.tiny = true;
    else if (text == "--out" && more)
      a.settings.folder = argv[++i];
    else if (text == "--seconds" && more)
      a.seconds = std::atoi(argv[++i]);
    else if (text == "--child" && more)
      a.child_seconds = std::atoi(argv[++i]);
    else if (find(text) != nullptr)
      a.parts.push_back(text);
    else
      return false;
  }
  return true;
}

// In the process of one part.
int run_part(const Arguments& a) {
  Settings settings = a.settings;
  settings.end = std::chrono::steady_clock::now() + std::chrono::seconds(a.child_seconds);
  const Part& part = *find(a.parts.at(0));
  Report report(settings, part.name);
  try {
    part.run(report);
  } catch (const std::exception& error) {
    report.pass(part.name, "", false, error.what());
    return 1;
  }
  return 0;
}

std::vector<Line> run_child(const Arguments& a, const Part& part, int seconds) {
  std::vector<std::string> command = {own_path(), "--out", a.settings.folder, "--child",
                                      std::to_string(seconds)};
  if (a.settings.tiny) command.push_back("--tiny");
  command.push_back(part.name);
  const std::string log = concat(a.settings.folder, "/", part.name, ".log");
  const TimePoint start = std::chrono::steady_clock::now();
  const ChildEnd end = run_command(command, {}, log, std::chrono::seconds(seconds + kGrace));
  std::vector<Line> lines = read_lines(a.settings.folder, part.name);
  if (!end.well)
    lines.push_back(
        {part.name, "process", "", 0, "", 0, Verdict::fail, concat(end.text, "; see ", log)});
  const double took = cohort::seconds(std::chrono::steady_clock::now() - start);
  lines.push_back({part.name, "time taken", "", took, "s"});
  return lines;
}

std::string text_of(const std::vector<Line>& lines, const std::string& name) {
  for (const Line& line : lines)
    if (line.part == "device" && line.name == name) return line.note;
  return "";
}

void write_lines(const Arguments& a, const std::vector<Line>& lines) {
  char date[40];
  const std::time_t now = std::time(nullptr);
  std::strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
  write_json(a.settings.folder + "/gpu_check.json",
             {{"date", date},
              {"device", text_of(lines, "device")},
              {"driver", text_of(lines, "driver")},
              {"runtime", text_of(lines, "runtime")}},
             lines);
}

int run_all(const Arguments& a) {
  std::filesystem::create_directories(a.settings.folder);
  const Deadline deadline = Deadline::after(std::chrono::seconds(a.seconds));
  std::vector<Line> lines;
  for (const Part& part : kParts) {
    if (!a.parts.empty() && std::count(a.parts.begin(), a.parts.end(), part.name) == 0) continue;
    const int left = int(cohort::seconds(deadline.left())) - kGrace;
    if (left < 5) {
      lines.push_back(
          {part.name, "part", "", 0, "", 0, Verdict::info, "left out: no time is left"});
      continue;
    }
    std::fprintf(stderr, "gpu_check: %s ...\n", part.name);
    const std::vector<Line> more = run_child(a, part, std::min(part.seconds, left));
    lines.insert(lines.end(), more.begin(), more.end());
    write_lines(a, lines);  // now, for who stops us later
  }
  write_lines(a, lines);
  print_table(lines);
  const auto failed = std::count_if(lines.begin(), lines.end(),
                                    [](const Line& l) { return l.verdict == Verdict::fail; });
  std::printf("%d lines, %d failed\n", int(lines.size()), int(failed));
  return failed == 0 ? 0 : 1;
}

int run(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "nccl-rank") == 0) return run_nccl_rank(argc, argv);
  if (argc == 3 && std::strcmp(argv[1], "make-expected") == 0) return write_expected(argv[2]);
  Arguments a;
  if (!parse(argc, argv, a)) {
    std::fprintf(stderr, "usage: gpu_check [--out DIR] [--tiny] [--seconds N] [PART ...]\n");
    return 2;
  }
  if (a.child_seconds > 0) return run_part(a);
  if (count_cuda_devices() == 0) {
    std::fprintf(stderr, "gpu_check: %s\n", open_cuda_device(0).status().message().c_str());
    return 2;
  }
  return run_all(a);
}

}  // namespace
}  // namespace cohort::gpu_check

int main(int argc, char** argv) { return cohort::gpu_check::run(argc, argv); }
