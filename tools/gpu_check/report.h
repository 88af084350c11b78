// SPDX-License-Identifier: Apache-2.0
// What the check finds, line by line. A part runs as a process of its own and appends its lines to
// FOLDER/PART.tsv as they come, so that a crash loses nothing that was measured before it.
#pragma once
#include <fstream>
#include <string>
#include <vector>

#include "base/clock.h"

namespace cohort::gpu_check {

enum class Verdict { info, pass, fail };
const char* name(Verdict verdict);

struct Line {
  std::string part, name, shape;
  double value = 0;
  std::string unit;
  double ceiling = 0;  // in the same unit; 0: none
  Verdict verdict = Verdict::info;
  std::string note = {};

  // What is reached of the ceiling: for times the ceiling is the least, else the most.
  double ratio() const;
};

struct Settings {
  std::string folder;  // for results
  bool tiny = false;   // shapes that an emulated device computes in seconds
  TimePoint end{};     // when this part has to be done
};

class Report {
 public:
  Report(const Settings& settings, std::string part);

  void add(const std::string& name, const std::string& shape, double value, const std::string& unit,
           double ceiling = 0, Verdict verdict = Verdict::info);
  // An error as a share of what is allowed: passes up to 1. NaN fails.
  void check(const std::string& name, const std::string& shape, double error);
  void pass(const std::string& name, const std::string& shape, bool good, const std::string& note);
  void note(const std::string& name, const std::string& shape, const std::string& text);
  // Calls f unless the time is over; what it throws becomes a failed line.
  template <class F>
  void guarded(const std::string& name, const std::string& shape, F f) {
    if (late(name, shape)) return;
    try {
      f();
    } catch (const std::exception& error) {
      pass(name, shape, false, error.what());
    }
  }
  // Says that the line is left out where the time is over.
  bool late(const std::string& name, const std::string& shape);

  // Bandwidth (GB/s) or speed (TFLOP/s) that the part `device` measured; 0 where it did not.
  double ceiling(const std::string& name) const;

  bool tiny() const { return settings_.tiny; }
  const Settings& settings() const { return settings_; }

 private:
  void write(const Line& line);

  const Settings settings_;
  const std::string part_;
  std::ofstream file_;
  std::vector<Line> device_;
};

inline constexpr const char* kCopy = "copy bandwidth";
inline constexpr const char* kRead = "read bandwidth";
inline constexpr const char* kGemm = "bf16 gemm";

// The lines of a part's file; none where there is no file.
std::vector<Line> read_lines(const std::string& folder, const std::string& part);

// The table on standard output, where what passed under one name is one line; and
// FOLDER/gpu_check.json. facts: name and value, about the run.
void print_table(const std::vector<Line>& lines);
void write_json(const std::string& path,
                const std::vector<std::pair<std::string, std::string>>& facts,
                const std::vector<Line>& lines);

}  // namespace cohort::gpu_check
