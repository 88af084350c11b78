// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/worker_trials.h"

#include <cmath>
#include <cstdio>
#include <stdexcept>

#include "tests/cuda_emulation/planting.h"

namespace cohort::testing {
namespace {

// Every token depends on all that its sampler was told.
std::vector<TestRequest> drawn_requests(uint32_t seed) {
  std::vector<TestRequest> requests;
  for (int i = 0; i < 3; i++) {
    SamplingParams drawn;
    drawn.seed = seed + uint32_t(i);
    drawn.temperature = 1.3f;  // what is drawn follows from seed and logits
    drawn.logprobs = 2;
    requests.push_back({some_tokens(2 + i, seed + uint32_t(i)), 0, drawn, 0});
  }
  return requests;
}

std::string difference(const std::vector<SlotResult>& got, const std::vector<SlotResult>& want) {
  if (got.size() != want.size()) return "another number of results";
  for (size_t i = 0; i < want.size(); i++) {
    if (!got[i].error.empty()) return got[i].error;
    const SampledToken &a = got[i].sampled, &b = want[i].sampled;
    if (a.token != b.token || !(std::abs(a.logprob - b.logprob) < 1e-4))
      return concat("other results, first those of step ", i);
  }
  return "";
}

// The last number in words like "wait of stream 1 for stream 0".
int source_of(const std::string& mistake) {
  int from = -1;
  std::sscanf(mistake.c_str(), "wait of stream %*d for stream %d", &from);
  return from;
}

// Of the emulation's schedules; greater numbers are seeds of random ones.
constexpr int kIssueOrder = -1, kNewestFirst = 0;
void set_order(int order) {
  emu::set_schedule(order == kIssueOrder    ? emu::Schedule::issue_order
                    : order == kNewestFirst ? emu::Schedule::newest_first
                                            : emu::Schedule::random,
                    uint64_t(order));
}

}  // namespace

Trials::Trials(int tp, int pp, bool graphs) : options_(small_options(tp, pp, graphs)) {
  start();
  for (const uint32_t seed : {1, 100, 200, 300, 400, 500, 600, 700}) {
    requests_.push_back(drawn_requests(seed));
    expected_.push_back(replica_->run(requests_.back(), kSteps, {}));
  }
}

void Trials::start() {
  emu::set_device_count(8);
  replica_ = std::make_unique<GpuReplica>(options_);
  // One thread drives all: where nothing can run, nothing ever will.
  emu::set_host_threads(1);
  emu::set_stall_limit(std::chrono::milliseconds(1));
}

void Trials::stop() {
  emu::reset();
  emu::set_device_count(8);
  replica_.reset();
  emu::reset();
}

void Trials::restart() {
  stop();
  start();
}

std::vector<int> Trials::calls(const std::string& api, size_t step) {
  std::vector<int> calls(size_t(ranks()), 0);
  const auto add = [&](int sign) {
    return [&, sign](size_t at, int rank) {
      if (at == step) calls[size_t(rank)] += sign * int(emu::calls(api, rank));
    };
  };
  GpuReplica::Hooks hooks;
  hooks.before_launch = add(-1);
  hooks.after_launch = add(1);
  EXPECT_EQ(run(hooks), "");
  return calls;
}

std::string Trials::find(const Spot& spot, const std::vector<int>& held,
                         const std::function<void()>& plant) {
  for (const int first : {spot.rank, (spot.rank + 1) % ranks()}) {
    std::string found;
    for (const int stream : held)
      if (found = trial(spot, first, stream, kIssueOrder, plant); !found.empty()) return found;
    for (const int order : {kNewestFirst, 1, 2, 3})
      if (found = trial(spot, first, -1, order, plant); !found.empty()) return found;
  }
  return "";
}

std::string Trials::trial(const Spot& spot, int first, int stream, int order,
                          const std::function<void()>& plant) {
  if (spot.fresh) restart();
  set_order(order);
  const auto here = [&](size_t step, int rank) { return step == spot.step && rank == spot.rank; };
  GpuReplica::Hooks hooks;
  hooks.first = first;
  auto& before = spot.collect ? hooks.before_collect : hooks.before_launch;
  auto& after = spot.collect ? hooks.after_collect : hooks.after_launch;
  const auto hold_back = [&] {
    const int held = stream == kSource ? source_of(mistake_) : stream;
    if (held >= 0) emu::hold_back(spot.rank, held);
  };
  before = [&](size_t step, int rank) {
    if (!here(step, rank)) return;
    plant();
    if (stream != kSource) hold_back();
  };
  after = [&](size_t step, int rank) {
    if (!here(step, rank)) return;
    EXPECT_EQ(emu::planted(), 0u) << "no call was the one meant";
    mistake_ = emu::latest_mistake();
    hold_back();
  };
  return run(hooks);
}

std::string Trials::run(const GpuReplica::Hooks& hooks) {
  turn_ = (turn_ + 1) % requests_.size();
  std::string found;
  bool over = true;
  try {
    found = difference(replica_->run(requests_[turn_], kSteps, hooks), expected_[turn_]);
    over = false;
  } catch (const emu::Error& e) {
    found = e.what;
  } catch (const std::runtime_error& e) {
    found = e.what();
  }
  const auto reports = emu::reports();
  if (found.empty() && !reports.empty()) found = reports[0];
  if (over) mistake_ = emu::latest_mistake();
  emu::hold_back(-1, -1);
  set_order(kIssueOrder);
  if (over || !reports.empty()) restart();
  return found;
}

}  // namespace cohort::testing
