// SPDX-License-Identifier: Apache-2.0
// The part of libcudart that the worker uses, with the real header's prototypes. Linking this
// instead of libcudart runs the unchanged host code on a CPU: device memory is host memory, and
// queued work runs only when a host thread waits, in an order chosen by the test. What it does not
// know is a link error or an error with a report, never a silent success.
#include "tests/cuda_emulation/runtime.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "tests/cuda_emulation/state.h"

namespace emu {
namespace {
thread_local cudaError_t last_error = cudaSuccess;

void read_schedule(const std::string& text, Settings& s) {
  const std::string random = "random:";
  if (text == "issue") {
    s.schedule = Schedule::issue_order;
  } else if (text == "newest") {
    s.schedule = Schedule::newest_first;
  } else if (text.rfind(random, 0) == 0) {
    s.schedule = Schedule::random;
    s.seed = std::strtoull(text.c_str() + random.size(), nullptr, 10);
  } else {
    std::fprintf(stderr, "COHORT_EMULATED_SCHEDULE=%s: must be issue, newest or random:SEED\n",
                 text.c_str());
    std::abort();
  }
}
}  // namespace

Settings::Settings() {
  if (const char* v = std::getenv("COHORT_EMULATED_DEVICES")) devices = std::atoi(v);
  if (const char* v = std::getenv("COHORT_EMULATED_MEMORY")) memory = std::strtoull(v, nullptr, 10);
  if (const char* v = std::getenv("COHORT_EMULATED_SCHEDULE")) read_schedule(v, *this);
}

State& state() {
  static State& s = *new State;  // outlives whatever releases device memory at exit
  return s;
}

void set_schedule(Schedule schedule, std::uint64_t seed) {
  const Guard g;
  state().settings.schedule = schedule;
  state().rng.seed(seed);
}

void hold_back(int device, int stream) {
  const Guard g;
  state().settings.held_device = device;
  state().settings.held_stream = stream;
}

void set_device_count(int n) {
  const Guard g;
  state().settings.devices = n;
}

void set_device_memory(std::size_t bytes) {
  const Guard g;
  state().settings.memory = bytes;
}

void set_model(const Model& model) {
  const Guard g;
  state().settings.model = model;
}

void set_host_threads(int n) {
  const Guard g;
  state().settings.host_threads = n;
}

void set_stall_limit(std::chrono::milliseconds limit) {
  const Guard g;
  state().settings.stall_limit = limit;
}

void fail_next(const std::string& api, int error, int skip) {
  const Guard g;
  state().faults.push_back({api, error, skip});
}

int take_fault(const char* api) {
  const Guard g;
  auto& faults = state().faults;
  const auto it =
      std::find_if(faults.begin(), faults.end(), [&](const Fault& f) { return f.api == api; });
  if (it == faults.end() || it->skip-- > 0) return 0;
  const int error = it->error;
  faults.erase(it);
  return error;
}

void lose_device(int device, cudaError_t error) {
  const Guard g;
  state().lost[device] = error;
  version().bump();
}

void device_fault(int device, cudaError_t error, const std::string& why) {
  report(why);
  lose_device(device, error);
}

void report(const std::string& what) {
  const Guard g;
  std::fprintf(stderr, "cuda emulation: %s\n", what.c_str());
  state().reports.push_back(what);
}

std::vector<std::string> reports() {
  const Guard g;
  return state().reports;
}

void raise(const std::string& what) {
  report(what);
  throw Error{what};
}

std::uint64_t steps() {
  const Guard g;
  return state().steps;
}

Live live() {
  const Guard g;
  auto& s = state();
  Live l{0, s.events.size(), s.graphs.size(), s.execs.size(), 0, s.used[kHost]};
  for (auto* stream : s.streams) l.streams += !stream->destroyed;
  for (const auto& [device, bytes] : s.used) l.device_bytes += device == kHost ? 0 : bytes;
  return l;
}

void reset() {
  const Guard g;
  auto& s = state();
  for (auto* stream : s.streams) {
    stream->queue.clear();
    stream->capture = nullptr;
  }
  release_drained_streams();
  // What was dropped must not keep anyone waiting.
  for (auto* event : s.events)
    if (event->last && !event->last->done) event->last = nullptr;
  for (auto* exec : s.execs) exec->last = nullptr;
  s.faults.clear();
  s.plants.clear();
  s.latest_mistake.clear();
  s.postponed.clear();
  s.calls.clear();
  s.lost.clear();
  s.reports.clear();
  s.broken = false;
  s.settings = Settings();
  s.rng.seed(s.settings.seed);
  s.idle_version = ~0u;
  s.progress = Clock::now();
  version().bump();
}

cudaError_t lost(int device) {
  const auto it = state().lost.find(device);
  return it == state().lost.end() ? cudaSuccess : it->second;
}

cudaError_t enter(const char* api) {
  count(api);
  if (running_work())
    return misuse(cudaErrorNotPermitted, std::string(api) + " called by a host function");
  if (const int e = take_fault(api)) return fail(static_cast<cudaError_t>(e));
  return fail(lost(current_device()));
}

cudaError_t fail(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

cudaError_t misuse(cudaError_t error, const std::string& what) {
  report(what + " (" + cudaGetErrorName(error) + ")");
  return fail(error);
}

cudaError_t take_last_error(bool clear) {
  const auto e = last_error;
  if (clear) last_error = cudaSuccess;
  return e;
}

cudaError_t need(cudaStream_t stream) {
  if (!stream || stream == cudaStreamLegacy || stream == cudaStreamPerThread)
    return misuse(cudaErrorInvalidResourceHandle, "the default stream is not used in this project");
  const auto& all = state().streams;
  if (std::find(all.begin(), all.end(), stream) == all.end() || stream->destroyed)
    return misuse(cudaErrorInvalidResourceHandle, "not a stream, or not any more");
  return fail(lost(stream->device));
}

cudaError_t need(cudaEvent_t event) {
  if (!state().events.count(event))
    return misuse(cudaErrorInvalidResourceHandle, "not an event, or not any more");
  return fail(lost(event->device));
}
}  // namespace emu
