// SPDX-License-Identifier: Apache-2.0
// The part of libcudart that the worker uses, with the real header's prototypes. Linking this
// instead of libcudart runs the unchanged host code on a CPU: device memory is host memory, and
// queued work runs only when a host thread waits, in an order chosen by the test.
#include "tests/cuda_emulation/runtime.h"

#include <cuda_runtime_api.h>

#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <random>
#include <set>

#include "tests/cuda_emulation/device.h"

namespace {
using emu::Work;
using Flag = std::shared_ptr<bool>;

struct Template {
  std::vector<emu::WorkMaker> make;
  std::vector<std::vector<int>> deps;
  std::vector<CUstream_st*> on;  // the stream each node was captured on
};
struct Capture {
  Template graph;
  CUstream_st* origin;
  std::map<CUstream_st*, std::vector<int>> tails;
};
struct Run {  // a graph launch; a plain operation is a graph of one node
  std::vector<Work> work;
  std::vector<std::vector<int>> deps;
  std::vector<char> arrived, done;
  std::vector<CUstream_st*> on;
  std::size_t left;
  std::uint64_t seq;
  std::shared_ptr<std::vector<char>>
      token;  // [i]: node i is done; [n]: launched; [n + 1]: all done
  std::shared_ptr<std::vector<char>> before;  // the previous run of the stream
};
}  // namespace

struct CUstream_st {
  int device;
  std::deque<Run> queue{};
  Capture* capture = nullptr;
  std::shared_ptr<std::vector<char>> last{};
#if defined(EMU_TSAN)
  void* fiber = __tsan_create_fiber(0);
#endif
};
struct CUevent_st {
  Flag last = std::make_shared<bool>(true);
  Capture* capture = nullptr;
  std::vector<int> nodes;
};
struct CUgraph_st {
  Template t;
};
struct CUgraphExec_st {
  Template t;
};

namespace {
struct Device {
  std::recursive_mutex mu;
  std::condition_variable_any cv;
  std::vector<CUstream_st*> streams;
  std::map<char*, std::pair<std::size_t, int>> allocations;  // device ranges
  emu::Schedule schedule = emu::Schedule::issue_order;
  std::mt19937_64 rng{1};
  int devices = 1, host_threads = 1, idle = 0;
  std::uint64_t seq = 0, steps = 0, epoch = 0, idle_version = ~0ull;
  bool broken = false;
} d;
thread_local int device = 0;
thread_local cudaError_t last_error = cudaSuccess;
cudaError_t err(cudaError_t e) { return e == cudaSuccess ? e : last_error = e; }

std::string dump() {
  std::string s;
  for (std::size_t k = 0; k < d.streams.size(); ++k)
    if (auto* st = d.streams[k]; !st->queue.empty()) {
      s += "\n  device " + std::to_string(st->device) + " stream " + std::to_string(k) +
           " waits in:";
      auto& r = st->queue.front();
      for (std::size_t i = 0; i < r.work.size(); ++i)
        if (r.arrived[i] && !r.done[i]) s += " " + r.work[i].what;
    }
  return s;
}

// Does f as the stream that node i belongs to, ordered after what the node depends on.
template <class F>
void as_stream(const Run& r, std::size_t i, F f) {
#if defined(EMU_TSAN)
  void* host = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(r.on[i]->fiber, __tsan_switch_to_fiber_no_sync);
#endif
  emu::ordered_after(&(*r.token)[r.work.size()]);
  if (r.before) emu::ordered_after(&r.before->back());
  for (int p : r.deps[i]) emu::ordered_after(&(*r.token)[p]);
  f();
#if defined(EMU_TSAN)
  __tsan_switch_to_fiber(host, __tsan_switch_to_fiber_no_sync);
#endif
}

// Runs one piece of runnable work. Returns false when nothing can run.
bool step() {
  struct Pick {
    CUstream_st* s;
    std::size_t i;
    std::uint64_t key;
  };
  std::vector<Pick> picks;
  bool again = true;
  while (again) {  // an arrival can make work on another stream ready
    again = false;
    picks.clear();
    for (auto* s : d.streams) {
      if (s->queue.empty()) continue;
      Run& r = s->queue.front();
      for (std::size_t i = 0; i < r.work.size(); ++i) {
        if (r.done[i]) continue;
        bool free = true;
        for (int p : r.deps[i]) free &= r.done[p] != 0;
        if (!free) continue;
        if (!r.arrived[i]) {
          r.arrived[i] = 1;
          if (r.work[i].arrive) {
            as_stream(r, i, [&] {
              emu::Bookkeeping b;
              r.work[i].arrive();
            });
            again = true;
          }
        }
        if (!r.work[i].ready || r.work[i].ready()) picks.push_back({s, i, r.seq * 4096 + i});
      }
    }
  }
  if (picks.empty()) return false;
  std::size_t best = 0;
  if (d.schedule == emu::Schedule::random)
    best = d.rng() % picks.size();
  else
    for (std::size_t i = 1; i < picks.size(); ++i)
      if ((d.schedule == emu::Schedule::newest_first) == (picks[i].key > picks[best].key)) best = i;
  auto [s, i, key] = picks[best];
  Run& r = s->queue.front();
  if (r.work[i].run)
    as_stream(r, i, [&] {
      r.work[i].run();
      emu::orders_before(&(*r.token)[i]);
      emu::orders_before(&r.token->back());
    });
  if (r.work[i].after) r.work[i].after();
  r.done[i] = 1;
  ++d.steps;
  emu::Bookkeeping b;
  if (--r.left == 0) s->queue.pop_front();
  return true;
}

void push(CUstream_st* s, const Template& t) {
  Run r;
  for (auto& m : t.make) r.work.push_back(m());
  r.deps = t.deps;
  r.on = t.on;
  r.arrived.assign(r.work.size(), 0);
  r.done.assign(r.work.size(), 0);
  r.left = r.work.size();
  r.seq = ++d.seq;
  r.before = s->last;
  r.token = s->last = std::make_shared<std::vector<char>>(r.left + 2);
  emu::orders_before(&(*r.token)[r.left]);
  if (r.left) s->queue.push_back(std::move(r));
  ++d.epoch;
  d.cv.notify_all();
}
CUstream_st* need(cudaStream_t s) {
  if (!s || s == cudaStreamLegacy || s == cudaStreamPerThread)
    emu::raise("the default stream is not used in this project");
  return s;
}
bool any_capture() {
  for (auto* s : d.streams)
    if (s->capture && s->device == device) return true;
  return false;
}
std::set<int> ancestors(const Template& t, std::vector<int> todo) {
  std::set<int> seen;
  while (!todo.empty()) {
    int n = todo.back();
    todo.pop_back();
    if (seen.insert(n).second)
      for (int p : t.deps[n]) todo.push_back(p);
  }
  return seen;
}
bool is_device(const void* p, std::size_t n) {
  auto it = d.allocations.upper_bound(static_cast<char*>(const_cast<void*>(p)));
  if (it == d.allocations.begin()) return false;
  --it;
  return static_cast<const char*>(p) + n <= it->first + it->second.first;
}
cudaError_t check_copy(const void* dst, const void* src, std::size_t n, cudaMemcpyKind k) {
  const bool to = k == cudaMemcpyHostToDevice || k == cudaMemcpyDeviceToDevice;
  const bool from = k == cudaMemcpyDeviceToHost || k == cudaMemcpyDeviceToDevice;
  if (k != cudaMemcpyDefault && (is_device(dst, n) != to || is_device(src, n) != from))
    return err(cudaErrorInvalidValue);
  return cudaSuccess;
}
}  // namespace

namespace emu {
void set_schedule(Schedule s, std::uint64_t seed) {
  d.schedule = s;
  d.rng.seed(seed);
}
void set_device_count(int n) { d.devices = n; }
void set_host_threads(int n) { d.host_threads = n; }
void host_thread_done() {
  std::lock_guard g(d.mu);
  --d.host_threads;
  ++d.epoch;
  d.cv.notify_all();
}
int current_device() { return device; }
std::uint64_t steps() { return d.steps; }
void raise(const std::string& what) { throw Error{what}; }
void reset() {
  std::lock_guard g(d.mu);
  emu::Bookkeeping b;
  for (auto* s : d.streams) {
    s->queue.clear();
    s->capture = nullptr;
  }
  d.broken = false;
}

void submit(CUstream_st* s, WorkMaker make) {
  std::lock_guard g(d.mu);
  need(s);
  if (!s->capture) return push(s, {{std::move(make)}, {{}}, {s}});
  Template& t = s->capture->graph;
  auto& tail = s->capture->tails[s];
  t.make.push_back(std::move(make));
  t.deps.push_back(tail);
  t.on.push_back(s);
  tail = {int(t.make.size()) - 1};
}

void wait_until(const std::function<bool()>& done) {
  std::unique_lock g(d.mu);
  while (!done()) {
    if (d.broken) raise("another rank failed");
    bool ran;
    try {
      ran = step();
    } catch (...) {
      d.broken = true;
      d.cv.notify_all();
      throw;
    }
    if (ran) {
      d.cv.notify_all();
      continue;
    }
    const auto version = d.epoch + d.steps;
    if (d.idle_version != version) {
      d.idle_version = version;
      d.idle = 0;
    }
    if (++d.idle >= d.host_threads) {  // every rank has seen this state and none can move it
      d.broken = true;
      d.cv.notify_all();
      raise("deadlock: no stream can make progress" + dump());
    }
    d.cv.wait(g, [&] { return d.broken || d.epoch + d.steps != version; });
  }
}

cudaError_t enqueue(cudaStream_t s, const char* what, std::function<void()> work) {
  submit(s, [what, work = std::move(work)] { return Work{what, {}, {}, work, {}}; });
  return cudaSuccess;
}
}  // namespace emu

extern "C" {
cudaError_t cudaGetDeviceCount(int* n) {
  *n = d.devices;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int i) {
  if (i < 0 || i >= d.devices) return err(cudaErrorInvalidDevice);
  device = i;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* i) {
  *i = device;
  return cudaSuccess;
}
cudaError_t cudaGetLastError() {
  auto e = last_error;
  last_error = cudaSuccess;
  return e;
}
const char* cudaGetErrorString(cudaError_t e) {
  return e == cudaSuccess ? "no error" : "emulated CUDA error";
}

cudaError_t cudaMalloc(void** p, size_t n) {
  std::lock_guard g(d.mu);
  if (any_capture()) return err(cudaErrorStreamCaptureUnsupported);
  if (!(*p = std::aligned_alloc(256, (n + 255) / 256 * 256))) return err(cudaErrorMemoryAllocation);
  std::memset(*p, 0xff, (n + 255) / 256 * 256);  // NaN in every float format
  d.allocations[static_cast<char*>(*p)] = {n, device};
  return cudaSuccess;
}
cudaError_t cudaFree(void* p) {
  if (!p) return cudaSuccess;
  try {
    cudaDeviceSynchronize();
  } catch (const emu::Error&) {
    return cudaErrorUnknown;
  }  // destructors call this
  std::lock_guard g(d.mu);
  if (!d.allocations.erase(static_cast<char*>(p))) return err(cudaErrorInvalidValue);
  std::free(p);
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** p, size_t n) {
  return (*p = std::malloc(n)) ? cudaSuccess : err(cudaErrorMemoryAllocation);
}
cudaError_t cudaFreeHost(void* p) {
  std::free(p);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* dst, const void* src, size_t n, cudaMemcpyKind k,
                            cudaStream_t s) {
  if (auto e = check_copy(dst, src, n, k)) return e;
  return emu::enqueue(s, "memcpy", [=] {
    emu::reads(src, n);
    emu::writes(dst, n);
    std::memcpy(dst, src, n);
  });
}
cudaError_t cudaMemsetAsync(void* p, int v, size_t n, cudaStream_t s) {
  if (!is_device(p, n)) return err(cudaErrorInvalidValue);
  return emu::enqueue(s, "memset", [=] {
    emu::writes(p, n);
    std::memset(p, v, n);
  });
}
cudaError_t cudaMemcpy(void* dst, const void* src, size_t n, cudaMemcpyKind k) {
  if (auto e = check_copy(dst, src, n, k)) return e;
  cudaDeviceSynchronize();
  std::memcpy(dst, src, n);
  return cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t f, void* p) {
  return emu::enqueue(s, "host function", [=] { f(p); });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned) {
  std::lock_guard g(d.mu);
  d.streams.push_back(*s = new CUstream_st{.device = device});
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* s, unsigned f, int) {
  return cudaStreamCreateWithFlags(s, f);
}
cudaError_t cudaStreamDestroy(cudaStream_t s) {
  emu::wait_until([&] { return s->queue.empty(); });
  std::lock_guard g(d.mu);
  std::erase(d.streams, s);
  delete s;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t s) {
  if (need(s)->capture) return err(cudaErrorStreamCaptureUnsupported);
  emu::wait_until([&] { return s->queue.empty(); });
  if (s->last) emu::ordered_after(&s->last->back());
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t s) {
  std::lock_guard g(d.mu);
  if (need(s)->queue.empty()) return cudaSuccess;
  step();  // a polling loop makes progress
  return cudaErrorNotReady;
}
cudaError_t cudaDeviceSynchronize() {
  int dev = device;
  emu::wait_until([=] {
    for (auto* s : d.streams)
      if (s->device == dev && !s->queue.empty()) return false;
    return true;
  });
  for (auto* s : d.streams)
    if (s->device == dev && s->last) emu::ordered_after(&s->last->back());
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned) {
  *e = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t e) {
  delete e;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
  std::lock_guard g(d.mu);
  if (need(s)->capture) {
    e->capture = s->capture;
    e->nodes = s->capture->tails[s];
    return cudaSuccess;
  }
  e->capture = nullptr;
  Flag f = e->last = std::make_shared<bool>(false);
  emu::submit(s, [f] {
    return Work{
        "event record", {}, {}, [p = f.get()] { emu::orders_before(p); }, [f] { *f = true; }};
  });
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned) {
  std::lock_guard g(d.mu);
  need(s);
  if (e->capture) {
    if (s->capture && s->capture != e->capture) return err(cudaErrorStreamCaptureMerge);
    s->capture = e->capture;
    auto& tail = s->capture->tails[s];
    tail.insert(tail.end(), e->nodes.begin(), e->nodes.end());
    return cudaSuccess;
  }
  if (s->capture) return err(cudaErrorStreamCaptureIsolation);
  Flag f = e->last;
  emu::submit(s, [f] {
    return Work{"event wait", {}, [f] { return *f; }, [p = f.get()] { emu::ordered_after(p); }, {}};
  });
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t e) {
  std::lock_guard g(d.mu);
  if (*e->last) return cudaSuccess;
  step();
  return cudaErrorNotReady;
}
cudaError_t cudaEventSynchronize(cudaEvent_t e) {
  Flag f = e->last;
  emu::wait_until([f] { return *f; });
  emu::ordered_after(f.get());
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t, cudaEvent_t) {
  *ms = 0;
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode) {
  std::lock_guard g(d.mu);
  if (need(s)->capture) return err(cudaErrorIllegalState);
  s->capture = new Capture{{}, s, {{s, {}}}};
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t* out) {
  std::lock_guard g(d.mu);
  Capture* c = need(s)->capture;
  *out = nullptr;
  if (!c) return err(cudaErrorIllegalState);
  if (c->origin != s) return err(cudaErrorStreamCaptureUnmatched);
  auto joined = ancestors(c->graph, c->tails[s]);
  bool ok = true;
  for (auto& [st, tail] : c->tails) {
    st->capture = nullptr;
    for (int n : tail) ok &= joined.count(n) != 0;
  }
  if (ok) *out = new CUgraph_st{c->graph};
  delete c;
  return ok ? cudaSuccess : err(cudaErrorStreamCaptureUnjoined);
}
cudaError_t cudaStreamIsCapturing(cudaStream_t s, cudaStreamCaptureStatus* st) {
  *st = need(s)->capture ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* x, cudaGraph_t g, unsigned long long) {
  *x = new CUgraphExec_st{g->t};
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t x, cudaStream_t s) {
  std::lock_guard g(d.mu);
  if (need(s)->capture) return err(cudaErrorStreamCaptureUnsupported);
  push(s, x->t);
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t g) {
  delete g;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t x) {
  delete x;
  return cudaSuccess;
}
}
