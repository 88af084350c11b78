// SPDX-License-Identifier: Apache-2.0
#include "tools/gpu_check/report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>

#include "base/check.h"

namespace cohort::gpu_check {
namespace {

// Of a file's line: no tabs and no line ends.
std::string plain(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 32) c = ' ';
  return text;
}

std::string number(double x) {
  char text[40];
  std::snprintf(text, sizeof text, "%.6g", x);
  return text;
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : plain(text)) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

// JSON has neither NaN nor infinity.
std::string json_number(double x) { return std::isfinite(x) ? number(x) : "null"; }

Verdict verdict_of(const std::string& text) {
  if (text == name(Verdict::pass)) return Verdict::pass;
  return text == name(Verdict::fail) ? Verdict::fail : Verdict::info;
}

}  // namespace

const char* name(Verdict verdict) {
  return verdict == Verdict::pass ? "pass" : verdict == Verdict::fail ? "FAIL" : "-";
}

double Line::ratio() const {
  if (ceiling <= 0 || value <= 0) return 0;
  const bool time = unit == "ms" || unit == "us" || unit == "s";
  return time ? ceiling / value : value / ceiling;
}

Report::Report(const Settings& settings, std::string part)
    : settings_(settings),
      part_(std::move(part)),
      file_(settings.folder + "/" + part_ + ".tsv"),
      device_(read_lines(settings.folder, "device")) {}

void Report::write(const Line& l) {
  file_ << plain(l.name) << '\t' << plain(l.shape) << '\t' << number(l.value) << '\t' << l.unit
        << '\t' << number(l.ceiling) << '\t' << gpu_check::name(l.verdict) << '\t' << plain(l.note)
        << std::endl;
}

void Report::add(const std::string& name, const std::string& shape, double value,
                 const std::string& unit, double ceiling, Verdict verdict) {
  write({part_, name, shape, value, unit, ceiling, verdict});
}

void Report::check(const std::string& name, const std::string& shape, double error) {
  const Verdict verdict = error <= 1 ? Verdict::pass : Verdict::fail;
  write({part_, name, shape, error, "of allowed", 0, verdict});
}

void Report::pass(const std::string& name, const std::string& shape, bool good,
                  const std::string& note) {
  write({part_, name, shape, 0, "", 0, good ? Verdict::pass : Verdict::fail, note});
}

void Report::note(const std::string& name, const std::string& shape, const std::string& text) {
  write({part_, name, shape, 0, "", 0, Verdict::info, text});
}

bool Report::late(const std::string& name, const std::string& shape) {
  if (std::chrono::steady_clock::now() < settings_.end) return false;
  note(name, shape, "left out: the part's time is over");
  return true;
}

double Report::ceiling(const std::string& name) const {
  double most = 0;
  for (const Line& line : device_)
    if (line.name == name) most = std::max(most, line.value);
  return most;
}

std::vector<Line> read_lines(const std::string& folder, const std::string& part) {
  std::vector<Line> lines;
  std::ifstream file(folder + "/" + part + ".tsv");
  for (std::string text; std::getline(file, text);) {
    std::vector<std::string> fields(1);
    for (const char c : text) {
      if (c == '\t')
        fields.emplace_back();
      else
        fields.back() += c;
    }
    fields.resize(7);  // a process that was killed may have left half a line
    lines.push_back({part, fields[0], fields[1], std::strtod(fields[2].c_str(), nullptr), fields[3],
                     std::strtod(fields[4].c_str(), nullptr), verdict_of(fields[5]), fields[6]});
  }
  return lines;
}

namespace {

// Passes that differ in their shape alone, as one line with the largest of their values.
std::vector<Line> folded(const std::vector<Line>& lines) {
  std::vector<Line> out;
  std::map<std::string, std::pair<size_t, int>> seen;  // where in `out`, how many
  for (const Line& l : lines) {
    if (l.verdict != Verdict::pass) {
      out.push_back(l);
      continue;
    }
    const auto [at, first] =
        seen.insert({concat(l.part, '\t', l.name, '\t', l.unit, '\t', l.note), {out.size(), 0}});
    auto& [index, count] = at->second;
    count++;
    if (first) {
      out.push_back(l);
      continue;
    }
    out[index].value = std::max(out[index].value, l.value);
    out[index].shape = concat(count, " shapes, the largest of all");
    if (l.unit.empty()) out[index].shape = concat(count, " shapes");
  }
  return out;
}

}  // namespace

void print_table(const std::vector<Line>& all) {
  const std::vector<Line> lines = folded(all);
  std::printf("%-10s %-38s %-44s %11s %-10s %10s %6s  %s\n", "part", "what", "shape", "value",
              "unit", "ceiling", "ratio", "verdict");
  for (const Line& l : lines) {
    const bool measured = !l.unit.empty();
    std::string ratio;
    if (l.ratio() > 0) {
      char text[20];
      std::snprintf(text, sizeof text, "%.3f", l.ratio());
      ratio = text;
    }
    std::printf("%-10s %-38s %-44s %11s %-10s %10s %6s  %s%s%s\n", l.part.c_str(), l.name.c_str(),
                l.shape.c_str(), measured ? number(l.value).c_str() : "", l.unit.c_str(),
                l.ceiling > 0 ? number(l.ceiling).c_str() : "", ratio.c_str(), name(l.verdict),
                l.note.empty() ? "" : "  ", l.note.c_str());
  }
  std::fflush(stdout);
}

void write_json(const std::string& path,
                const std::vector<std::pair<std::string, std::string>>& facts,
                const std::vector<Line>& lines) {
  std::ofstream out(path);
  out << "{\n";
  for (const auto& [key, value] : facts)
    out << "  " << quoted(key) << ": " << quoted(value) << ",\n";
  out << "  \"lines\": [";
  const char* separator = "\n";
  for (const Line& l : lines) {
    out << separator << "    {\"part\": " << quoted(l.part) << ", \"name\": " << quoted(l.name)
        << ", \"shape\": " << quoted(l.shape) << ", \"value\": " << json_number(l.value)
        << ", \"unit\": " << quoted(l.unit) << ", \"ceiling\": " << json_number(l.ceiling)
        << ", \"ratio\": " << json_number(l.ratio()) << ", \"verdict\": " << quoted(name(l.verdict))
        << ", \"note\": " << quoted(l.note) << "}";
    separator = ",\n";
  }
  out << "\n  ]\n}\n";
}

}  // namespace cohort::gpu_check
