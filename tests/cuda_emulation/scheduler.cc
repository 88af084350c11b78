// SPDX-License-Identifier: Apache-2.0
// Queues of device work, and the order they are run in.
#include <algorithm>

#include "tests/cuda_emulation/state.h"

namespace emu {
namespace {
thread_local bool running = false;

struct Pick {
  CUstream_st* stream;
  std::size_t node;
  std::pair<std::uint64_t, std::size_t> key;  // in issue order
};

struct Running {
  Running() { running = true; }
  Running(const Running&) = delete;
  ~Running() { running = false; }
};

// Does f as the stream that node i belongs to, ordered after what the node depends on.
template <class F>
void as_stream(const Run& r, std::size_t i, F f) {
  const As as(*r.on[i]);
  const Running mark;
  const auto& tokens = *r.self->tokens;
  ordered_after(&tokens[r.work.size()]);
  for (const auto& before : {r.stream_before, r.exec_before})
    if (before) ordered_after(&before->tokens->back());
  for (int p : r.deps[i]) ordered_after(&tokens[p]);
  f();
}

bool free_to_run(const Run& r, std::size_t i) {
  if (r.done[i] || (r.exec_before && !r.exec_before->done)) return false;
  return std::all_of(r.deps[i].begin(), r.deps[i].end(), [&](int p) { return r.done[p] != 0; });
}

// Lets work arrive whose dependencies are done. Whether any had something to say on arrival: that
// can make work of other streams ready.
bool arrive(Run& r) {
  bool any = false;
  for (std::size_t i = 0; i < r.work.size(); ++i) {
    if (r.arrived[i] || !free_to_run(r, i)) continue;
    r.arrived[i] = 1;
    if (!r.work[i].arrive) continue;
    as_stream(r, i, [&] {
      const Bookkeeping b;
      r.work[i].arrive();
    });
    any = true;
  }
  return any;
}

std::vector<Pick> runnable() {
  auto& s = state();
  std::vector<Pick> picks;
  bool again = true;
  while (again) {
    again = false;
    for (auto* stream : s.streams)
      if (!stream->queue.empty() && !s.lost.count(stream->device))
        again |= arrive(stream->queue.front());
  }
  s.external_waits = false;
  for (auto* stream : s.streams) {
    if (stream->queue.empty() || s.lost.count(stream->device)) continue;
    Run& r = stream->queue.front();
    for (std::size_t i = 0; i < r.work.size(); ++i) {
      if (!r.arrived[i] || r.done[i]) continue;
      if (!r.work[i].ready || r.work[i].ready())
        picks.push_back({stream, i, {r.seq, i}});
      else
        s.external_waits |= r.work[i].external;
    }
  }
  return picks;
}

Pick choose(std::vector<Pick> picks) {
  auto& s = state();
  const auto held = [&](const Pick& p) {
    return p.stream->device == s.settings.held_device && p.stream->number == s.settings.held_stream;
  };
  if (!std::all_of(picks.begin(), picks.end(), held)) std::erase_if(picks, held);
  if (s.settings.schedule == Schedule::random) return picks[s.rng() % picks.size()];
  const auto less = [](const Pick& a, const Pick& b) { return a.key < b.key; };
  const auto [first, last] = std::minmax_element(picks.begin(), picks.end(), less);
  return s.settings.schedule == Schedule::newest_first ? *last : *first;
}

void changed() {
  state().progress = Clock::now();
  version().bump();
}

std::string dump() {
  std::string text;
  auto& streams = state().streams;
  for (std::size_t k = 0; k < streams.size(); ++k) {
    if (streams[k]->queue.empty()) continue;
    text += "\n  device " + std::to_string(streams[k]->device) + " stream " + std::to_string(k) +
            " waits in:";
    const Run& r = streams[k]->queue.front();
    for (std::size_t i = 0; i < r.work.size(); ++i)
      if (r.arrived[i] && !r.done[i]) text += " " + r.work[i].what;
  }
  return text;
}

constexpr std::uint64_t kPolled = 32;  // pieces of work that run, at most, while a host polls

[[noreturn]] void deadlock() {
  state().broken = true;
  changed();
  raise("deadlock: no stream can make progress" + dump());
}

// Work itself can raise: then nothing is right any more until reset().
bool run_or_break() {
  try {
    return run_one();
  } catch (...) {
    state().broken = true;
    changed();
    throw;
  }
}

// Nothing can run: sleeps until that may have changed, or calls it a deadlock.
void idle(bool external) {
  auto& s = state();
  const auto seen = version().now();
  external |= s.external_waits;
  if (s.settings.host_threads > 0 && !external) {
    if (s.idle_version != seen) s.idle = 0;
    s.idle_version = seen;
    if (++s.idle >= s.settings.host_threads) deadlock();
  }
  const auto limit = std::chrono::microseconds(external ? 200 : 50000);
  while (version().now() == seen) {
    if (!external && Clock::now() - s.progress > s.settings.stall_limit) deadlock();
    const int depth = s.lock.release();
    version().sleep(seen, limit);
    s.lock.reclaim(depth);
    if (external) return;
  }
}
}  // namespace

bool running_work() { return running; }

bool run_one() {
  auto& s = state();
  const auto picks = runnable();
  if (picks.empty()) return false;
  const Pick pick = choose(picks);
  Run& r = pick.stream->queue.front();
  const std::size_t i = pick.node;
  as_stream(r, i, [&] {
    if (r.work[i].run) r.work[i].run();
    orders_before(&(*r.self->tokens)[i]);
    orders_before(&r.self->tokens->back());
  });
  if (r.work[i].after) r.work[i].after();
  r.done[i] = 1;
  ++s.steps;
  if (--r.left == 0) {
    r.self->done = true;
    pick.stream->queue.pop_front();
    release_drained_streams();
  }
  changed();
  return true;
}

void poll(const std::function<bool()>& done) {
  auto& s = state();
  if (s.broken) raise("another rank failed");
  // Several, for those who poll sleep in between: as many as a fast device would do meanwhile.
  const bool random = s.settings.schedule == Schedule::random;
  bool any = false;
  for (auto n = random ? 1 + s.rng() % kPolled : kPolled; n > 0 && !done() && run_or_break(); --n)
    any = true;
  if (any) return;
  if (!s.external_waits && Clock::now() - s.progress > s.settings.stall_limit) deadlock();
  // A polling loop must leave the processor to those that it waits for.
  const int depth = s.lock.release();
  version().sleep(version().now(), std::chrono::microseconds(50));
  s.lock.reclaim(depth);
}

void push(CUstream_st* stream, const Template& t, const std::shared_ptr<Launch>& exec_before) {
  auto& s = state();
  const auto n = t.make.size();
  Run r;
  for (const auto& make : t.make) r.work.push_back(make());
  r.deps = t.deps;
  for (const auto& fiber : t.on) r.on.push_back(fiber ? fiber : stream->fiber);
  r.arrived.assign(n, 0);
  r.done.assign(n, 0);
  r.left = n;
  r.seq = ++s.sequence;
  r.stream_before = stream->last;
  r.exec_before = exec_before;
  r.self = std::make_shared<Launch>(Launch{n == 0, std::make_shared<std::vector<char>>(n + 2)});
  stream->last = r.self;
  orders_before(&(*r.self->tokens)[n]);
  stream->queue.push_back(std::move(r));
  changed();
}

cudaError_t submit(cudaStream_t stream, WorkMaker make) {
  const Guard g;
  if (const auto e = need(stream)) return e;
  if (!stream->capture) {
    push(stream, {{std::move(make)}, {{}}, {nullptr}}, nullptr);
    return cudaSuccess;
  }
  Capture& c = *stream->capture;
  if (c.invalid) return fail(cudaErrorStreamCaptureInvalidated);
  auto& tail = c.tails[stream];
  c.graph.make.push_back(std::move(make));
  c.graph.deps.push_back(tail);
  c.graph.on.push_back(stream == c.origin ? nullptr : stream->fiber);
  tail = {static_cast<int>(c.graph.make.size()) - 1};
  return cudaSuccess;
}

cudaError_t enqueue(cudaStream_t stream, const char* what, std::function<void()> work) {
  const Guard g;
  if (const auto e = enter("kernel launch")) return e;
  if (const auto e = need(stream)) return e;
  if (stream->device != current_device())
    return misuse(cudaErrorInvalidResourceHandle,
                  std::string(what) + " launched on a stream of device " +
                      std::to_string(stream->device) + " while device " +
                      std::to_string(current_device()) + " is current");
  if (dropped("kernel launch", std::string("launch of ") + what)) return cudaSuccess;
  return submit(stream,
                [what, work = std::move(work)] { return Work{what, {}, {}, work, {}, false}; });
}

void wait_until(const std::function<bool()>& done, bool external) {
  const Guard g;
  while (!done()) {
    if (state().broken) raise("another rank failed");
    if (!run_or_break()) idle(external);
  }
}

void notify() {
  const Guard g;
  changed();
}

void host_thread_done() {
  const Guard g;
  --state().settings.host_threads;
  changed();
}

bool drained(int device) {
  const auto& streams = state().streams;
  return state().lost.count(device) || std::all_of(streams.begin(), streams.end(), [&](auto* s) {
           return s->device != device || s->queue.empty();
         });
}

void order_after_device(int device) {
  for (auto* s : state().streams)
    if (s->device == device && s->last) ordered_after(&s->last->tokens->back());
}

bool drain(int device) noexcept {
  if (state().broken || state().lost.count(device)) return false;
  try {
    wait_until([=] { return drained(device); });
  } catch (const Error&) {
    return false;
  }
  order_after_device(device);
  return true;
}

void release_drained_streams() {
  std::erase_if(state().streams, [](CUstream_st* s) {
    const bool over = s->destroyed && (s->queue.empty() || state().lost.count(s->device));
    if (over) delete s;
    return over;
  });
}
}  // namespace emu
