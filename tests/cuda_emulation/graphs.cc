// SPDX-License-Identifier: Apache-2.0
// Stream capture and graphs.
#include <cuda_runtime_api.h>

#include <algorithm>

#include "tests/cuda_emulation/state.h"

using emu::Capture;
using emu::enter;
using emu::fail;
using emu::Guard;
using emu::misuse;
using emu::need;
using emu::state;

namespace {
std::set<int> ancestors(const emu::Template& t, std::vector<int> todo) {
  std::set<int> seen;
  while (!todo.empty()) {
    const int n = todo.back();
    todo.pop_back();
    if (!seen.insert(n).second) continue;
    const auto& deps = t.deps[static_cast<std::size_t>(n)];
    todo.insert(todo.end(), deps.begin(), deps.end());
  }
  return seen;
}

bool joined(const Capture& c) {
  const auto seen = ancestors(c.graph, c.tails.at(c.origin));
  return std::all_of(c.tails.begin(), c.tails.end(), [&](const auto& tail) {
    return std::all_of(tail.second.begin(), tail.second.end(),
                       [&](int n) { return seen.count(n) != 0; });
  });
}

void end(Capture& c) {
  c.ended = true;
  for (auto* s : state().streams)
    if (s->capture.get() == &c) s->capture = nullptr;
}

cudaError_t need(cudaGraph_t graph) {
  return state().graphs.count(graph) ? cudaSuccess : misuse(cudaErrorInvalidValue, "not a graph");
}
cudaError_t need(cudaGraphExec_t exec) {
  return state().execs.count(exec) ? cudaSuccess
                                   : misuse(cudaErrorInvalidValue, "not an executable graph");
}

// Enqueues behind the graph's earlier launches.
cudaError_t launch(cudaGraphExec_t exec, cudaStream_t s, const emu::Template& t) {
  if (const auto e = need(exec)) return e;
  if (const auto e = need(s)) return e;
  if (s->capture) {
    s->capture->invalid = true;
    return misuse(cudaErrorStreamCaptureUnsupported, "graphs within graphs are not emulated");
  }
  emu::push(s, t, exec->last);
  exec->last = s->last;
  return cudaSuccess;
}

emu::Template nothing(const char* what) {
  return {{[what] { return emu::Work{what, {}, {}, {}, {}, false}; }}, {{}}, {nullptr}};
}
}  // namespace

namespace emu {
cudaError_t unsafe(const char* api) {
  bool forbidden = false;
  for (auto* s : state().streams) {
    if (!s->capture) continue;
    Capture& c = *s->capture;
    const bool here = c.thread == std::this_thread::get_id();
    if (c.mode != cudaStreamCaptureModeGlobal &&
        !(c.mode == cudaStreamCaptureModeThreadLocal && here))
      continue;
    forbidden = c.invalid = true;
  }
  if (!forbidden) return cudaSuccess;
  return misuse(cudaErrorStreamCaptureUnsupported,
                std::string(api) + " while a stream is being captured");
}
}  // namespace emu

extern "C" {
cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode mode) {
  const Guard g;
  if (const auto e = enter(__func__)) return e;
  if (const auto e = need(s)) return e;
  if (s->capture) return misuse(cudaErrorIllegalState, "the stream is being captured already");
  s->capture = std::make_shared<Capture>(
      Capture{{}, s, mode, std::this_thread::get_id(), {{s, {}}}, false, false});
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t* out) {
  const Guard g;
  *out = nullptr;
  if (const auto e = enter(__func__)) return e;
  if (const auto e = need(s)) return e;
  const auto c = s->capture;
  if (!c) return misuse(cudaErrorIllegalState, "the stream is not being captured");
  if (c->mode != cudaStreamCaptureModeRelaxed && c->thread != std::this_thread::get_id())
    return misuse(cudaErrorStreamCaptureWrongThread, "the capture began in another thread");
  if (c->origin != s) {
    c->invalid = true;
    return misuse(cudaErrorStreamCaptureUnmatched, "the capture did not begin on this stream");
  }
  end(*c);
  if (c->invalid) return fail(cudaErrorStreamCaptureInvalidated);
  if (!joined(*c))
    return misuse(cudaErrorStreamCaptureUnjoined, "a forked stream did not join the capture again");
  *out = new CUgraph_st{c->graph, std::vector<CUgraphNode_st>(c->graph.make.size())};
  state().graphs.insert(*out);
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t s, cudaStreamCaptureStatus* status) {
  const Guard g;
  if (const auto e = enter(__func__)) return e;
  if (const auto e = need(s)) return e;
  *status = !s->capture           ? cudaStreamCaptureStatusNone
            : s->capture->invalid ? cudaStreamCaptureStatusInvalidated
                                  : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph,
                                 unsigned long long flags) {
  const Guard g;
  *exec = nullptr;
  if (const auto e = enter(__func__)) return e;
  if (const auto e = need(graph)) return e;
  if (flags) return misuse(cudaErrorInvalidValue, "flags of graphs are not emulated");
  *exec = new CUgraphExec_st{graph->t};
  state().execs.insert(*exec);
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t s) {
  const Guard g;
  if (const auto e = enter(__func__)) return e;
  if (const auto e = need(exec)) return e;
  const auto empty = nothing("empty graph");
  return launch(exec, s, exec->t.make.empty() ? empty : exec->t);
}
cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t s) {
  const Guard g;
  if (const auto e = enter(__func__)) return e;
  return launch(exec, s, nothing("graph upload"));
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  const Guard g;
  if (const auto e = enter(__func__)) return e;
  if (const auto e = need(graph)) return e;
  const auto n = graph->nodes.size();
  if (nodes) {
    for (std::size_t i = 0; i < *count; ++i) nodes[i] = i < n ? &graph->nodes[i] : nullptr;
    *count = std::min(*count, n);
  } else {
    *count = n;
  }
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  const Guard g;
  if (const int e = emu::take_fault(__func__)) return fail(static_cast<cudaError_t>(e));
  if (const auto e = need(graph)) return e;
  state().graphs.erase(graph);
  delete graph;
  return cudaSuccess;
}
// Launches that still run hold what they need.
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  const Guard g;
  if (const int e = emu::take_fault(__func__)) return fail(static_cast<cudaError_t>(e));
  if (const auto e = need(exec)) return e;
  state().execs.erase(exec);
  delete exec;
  return cudaSuccess;
}
}
