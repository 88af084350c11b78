// SPDX-License-Identifier: Apache-2.0
#include "tools/bench_report.h"

#include <cstdio>

namespace cohort::bench {
namespace {

const char* name(Measurement::Kind kind) {
  return kind == Measurement::Kind::prefill ? "prefill" : "decode";
}

json to_json(const KernelResult& r) {
  json out = {{"name", r.name}};
  if (!r.seconds) {
    out["skipped"] = true;
    out["expected_seconds"] = r.expected_seconds;
    return out;
  }
  const double seconds = r.seconds->median;
  out["seconds"] = seconds;
  out["min"] = r.seconds->least;
  out["max"] = r.seconds->greatest;
  out["measurements"] = r.seconds->count;
  out["bytes_per_second"] = r.demand.bytes() / seconds;
  out["operations_per_second"] = r.demand.operations() / seconds;
  out["bound"] = name(r.bound);
  out["fraction_of_bound"] = r.fraction_of_bound;
  return out;
}

json to_json(const Measurement& m) {
  const double tokens = double(m.tokens);
  return {{"kind", name(m.kind)},
          {"size", m.size},
          {"tokens_per_second", m.tokens_per_second()},
          {"fraction_of_bound", m.fraction_of_bound},
          {"bound", name(m.bound)},
          {"context", m.context},
          {"tokens", m.tokens},
          {"seconds", m.seconds.median},
          {"min", tokens / m.seconds.greatest},
          {"max", tokens / m.seconds.least},
          {"repetitions", m.seconds.count}};
}

std::string line(const KernelResult& r) {
  char text[200];
  if (!r.seconds) {
    std::snprintf(text, sizeof text,
                  "%-44s  left out: a call takes about %s; --seconds or --filter\n", r.name.c_str(),
                  text_of_seconds(r.expected_seconds).c_str());
    return text;
  }
  const double seconds = r.seconds->median;
  const double operations = r.demand.operations();
  std::snprintf(text, sizeof text, "%-44s %10s %12s %12s %6s of %s\n", r.name.c_str(),
                text_of_seconds(seconds).c_str(), giga(r.demand.bytes() / seconds, "GB/s").c_str(),
                operations == 0 ? "" : giga(operations / seconds, "Gop/s").c_str(),
                percent(r.fraction_of_bound).c_str(), std::string(name(r.bound)).c_str());
  return text;
}

std::string line(const Measurement& m) {
  const bool decode = m.kind == Measurement::Kind::decode;
  char text[200];
  std::snprintf(text, sizeof text, "%-8s %6d %9s %12.1f   %10.1f .. %-10.1f %6s of %s\n",
                name(m.kind), m.size, decode ? std::to_string(m.context).c_str() : "-",
                m.tokens_per_second(), double(m.tokens) / m.seconds.greatest,
                double(m.tokens) / m.seconds.least, percent(m.fraction_of_bound).c_str(),
                std::string(name(m.bound)).c_str());
  return text;
}

}  // namespace

void KernelReportWriter::begin(const MachineLimits& machine) {
  machine_ = machine;
  if (as_json_) return;
  char head[200];
  std::snprintf(head, sizeof head, "\n%-44s %10s %12s %12s\n", "kernel", "time", "moved",
                "computed");
  out_ << to_text(machine_) << head << std::flush;
}

void KernelReportWriter::add(const KernelResult& result) {
  if (as_json_) return results_.push_back(to_json(result));
  out_ << line(result) << std::flush;
}

void KernelReportWriter::finish() {
  if (!as_json_) return;
  const json all = {{"isa", std::string(cohort::name(machine_.peaks.isa))},
                    {"threads", machine_.threads},
                    {"machine", to_json(machine_)},
                    {"results", results_}};
  out_ << all.dump(2) << '\n';
}

void ModelReportWriter::show(const ModelReport& so_far) {
  if (as_json_) return;
  if (!begun_) {
    char head[200];
    std::snprintf(head, sizeof head, "\n%-8s %6s %9s %12s   %24s\n", "", "size", "context",
                  "tokens/s", "least .. greatest");
    out_ << to_text(so_far.machine) << "model    " << so_far.name << ", " << so_far.arithmetic
         << ", tp " << options_.tp << ", " << options_.threads << " threads a rank, loaded in "
         << text_of_seconds(so_far.load_seconds) << '\n'
         << head;
  }
  begun_ = true;
  for (; shown_ < so_far.measurements.size(); shown_++)
    out_ << line(so_far.measurements[shown_]) << std::flush;
}

void ModelReportWriter::finish(const ModelReport& report) {
  if (!as_json_) return;
  const json machine = to_json(report.machine);
  json results = json::array();
  for (const Measurement& m : report.measurements) results.push_back(to_json(m));
  const json all = {{"results", results},
                    {"model",
                     {{"path", options_.model},
                      {"name", report.name},
                      {"fingerprint", report.fingerprint},
                      {"arithmetic", report.arithmetic},
                      {"weight_bytes", report.weight_bytes}}},
                    {"isa", std::string(cohort::name(options_.isa))},
                    {"threads", options_.threads},
                    {"tp", options_.tp},
                    {"context", options_.context},
                    {"tokens", options_.tokens},
                    {"repetitions", options_.repetitions},
                    {"chunk", options_.chunk},
                    {"load_seconds", report.load_seconds},
                    {"machine", machine},
                    {"placement", machine["placement"]}};
  // Names come from the file and need not be UTF-8.
  out_ << all.dump(2, ' ', false, json::error_handler_t::replace) << '\n';
}

}  // namespace cohort::bench
