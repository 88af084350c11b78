// SPDX-License-Identifier: Apache-2.0
// Stream capture and graphs of the emulated runtime against the CUDA Runtime API manual (API) and
// the CUDA C++ Programming Guide (PG), "CUDA Graphs". Each test names the section.
#include <cuda_runtime_api.h>

#include <string>
#include <thread>
#include <vector>

#include "tests/cuda/runtime_fixture.h"

namespace cohort::test {
namespace {
constexpr auto kThreadLocal = cudaStreamCaptureModeThreadLocal;

struct Note {
  std::string* log;
  char name;
};
void write_note(void* p) {
  const auto* note = static_cast<Note*>(p);
  note->log->push_back(note->name);
}

class GraphsTest : public RuntimeTest {
 protected:
  void begin(cudaStreamCaptureMode mode = kThreadLocal) {
    ASSERT_EQ(cudaStreamBeginCapture(a_, mode), cudaSuccess);
  }
  void note(cudaStream_t s, Note& n) {
    EXPECT_EQ(cudaLaunchHostFunc(s, write_note, &n), cudaSuccess);
  }
  void order(cudaStream_t from, cudaStream_t to) {
    Event e;
    EXPECT_EQ(cudaEventRecord(e, from), cudaSuccess);
    EXPECT_EQ(cudaStreamWaitEvent(to, e, 0), cudaSuccess);
  }
  cudaError_t end() {
    const auto error = cudaStreamEndCapture(a_, &graph_);
    EXPECT_EQ(graph_ != nullptr, error == cudaSuccess);
    return error;
  }
  void instantiate() {
    ASSERT_EQ(end(), cudaSuccess);
    ASSERT_EQ(cudaGraphInstantiate(&exec_, graph_, 0), cudaSuccess);
  }
  cudaStreamCaptureStatus status(cudaStream_t s) {
    cudaStreamCaptureStatus v = cudaStreamCaptureStatusNone;
    EXPECT_EQ(cudaStreamIsCapturing(s, &v), cudaSuccess);
    return v;
  }
  ~GraphsTest() override {
    if (exec_) cudaGraphExecDestroy(exec_);
    if (graph_) cudaGraphDestroy(graph_);
  }

  Stream a_, b_, c_;
  std::string log_;
  Note p_{&log_, 'p'}, q_{&log_, 'q'}, r_{&log_, 'r'}, z_{&log_, 'z'};
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t exec_ = nullptr;
};

// PG "Creating a Graph Using Stream Capture": captured work is not executed but put into a graph,
// which can be launched again and again.
TEST_F(GraphsTest, CapturedWorkRunsAtEachLaunch) {
  begin();
  EXPECT_EQ(status(a_), cudaStreamCaptureStatusActive);
  note(a_, p_);
  note(a_, q_);
  instantiate();
  EXPECT_EQ(status(a_), cudaStreamCaptureStatusNone);
  EXPECT_EQ(cudaStreamSynchronize(a_), cudaSuccess);
  EXPECT_EQ(log_, "");
  for (int i = 0; i < 3; ++i) ASSERT_EQ(cudaGraphLaunch(exec_, b_), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(b_), cudaSuccess);
  EXPECT_EQ(log_, "pqpqpq");
}

// PG "Cross-stream Dependencies and Events": an event recorded in a capture carries it to another
// stream. Inside a graph only its edges order work.
TEST_F(GraphsTest, ForkAndJoinUnderAnySchedule) {
  begin();
  note(a_, p_);
  order(a_, b_);
  order(a_, c_);
  EXPECT_EQ(status(b_), cudaStreamCaptureStatusActive);
  note(b_, q_);
  note(c_, r_);
  order(b_, a_);
  order(c_, a_);
  note(a_, z_);
  instantiate();
  EXPECT_EQ(status(c_), cudaStreamCaptureStatusNone);
  bool qr = false, rq = false;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    emu::set_schedule(emu::Schedule::random, seed);
    log_.clear();
    ASSERT_EQ(cudaGraphLaunch(exec_, a_), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(a_), cudaSuccess);
    ASSERT_TRUE(log_ == "pqrz" || log_ == "prqz") << log_;
    (log_ == "pqrz" ? qr : rq) = true;
  }
  EXPECT_TRUE(qr && rq);
}

// API "Graph Management", cudaGraphLaunch: behind earlier work of the stream, and behind earlier
// launches of the same executable graph, also on other streams.
TEST_F(GraphsTest, LaunchesOfOneGraphDoNotOverlap) {
  begin();
  note(a_, p_);
  order(a_, b_);
  note(b_, q_);
  note(a_, q_);
  order(b_, a_);
  note(a_, z_);
  instantiate();
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    emu::set_schedule(emu::Schedule::random, seed);
    log_.clear();
    ASSERT_EQ(cudaGraphLaunch(exec_, a_), cudaSuccess);
    ASSERT_EQ(cudaGraphLaunch(exec_, b_), cudaSuccess);
    ASSERT_EQ(cudaGraphUpload(exec_, c_), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(c_), cudaSuccess);
    EXPECT_EQ(log_, "pqqzpqqz");
  }
}

// Same call: work enqueued on the stream after the launch is behind the whole graph.
TEST_F(GraphsTest, LaterWorkIsBehindTheWholeGraph) {
  begin();
  order(a_, b_);
  note(b_, p_);
  order(b_, a_);
  instantiate();
  emu::set_schedule(emu::Schedule::newest_first);
  note(c_, q_);
  ASSERT_EQ(cudaGraphLaunch(exec_, c_), cudaSuccess);
  note(c_, z_);
  ASSERT_EQ(cudaStreamSynchronize(c_), cudaSuccess);
  EXPECT_EQ(log_, "qpz");
}

// API "Graph Management": an executable graph that is destroyed while it runs still finishes.
TEST_F(GraphsTest, DestroyedGraphFinishes) {
  begin();
  note(a_, p_);
  instantiate();
  ASSERT_EQ(cudaGraphLaunch(exec_, a_), cudaSuccess);
  ASSERT_EQ(cudaGraphExecDestroy(exec_), cudaSuccess);
  ASSERT_EQ(cudaGraphDestroy(graph_), cudaSuccess);
  EXPECT_EQ(cudaGraphExecDestroy(exec_), cudaErrorInvalidValue);
  EXPECT_TRUE(reported("not an executable graph"));
  exec_ = nullptr;
  graph_ = nullptr;
  EXPECT_EQ(cudaStreamSynchronize(a_), cudaSuccess);
  EXPECT_EQ(log_, "p");
}

// API "Graph Management", cudaGraphGetNodes: the number first, then the nodes; extra entries null.
TEST_F(GraphsTest, NodesAreTheOperations) {
  begin();
  note(a_, p_);
  order(a_, b_);
  note(b_, q_);
  order(b_, a_);
  ASSERT_EQ(end(), cudaSuccess);
  std::size_t n = 0;
  EXPECT_EQ(cudaGraphGetNodes(graph_, nullptr, &n), cudaSuccess);
  EXPECT_EQ(n, 2u);
  std::vector<cudaGraphNode_t> nodes(3, reinterpret_cast<cudaGraphNode_t>(1));
  n = 3;
  EXPECT_EQ(cudaGraphGetNodes(graph_, nodes.data(), &n), cudaSuccess);
  EXPECT_EQ(n, 2u);
  EXPECT_NE(nodes[0], nodes[1]);
  EXPECT_EQ(nodes[2], nullptr);
}

// API "Graph Management": a graph without nodes can be launched.
TEST_F(GraphsTest, EmptyGraph) {
  begin();
  instantiate();
  EXPECT_EQ(cudaGraphLaunch(exec_, a_), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(a_), cudaSuccess);
}

// PG "Cross-stream Dependencies and Events": all streams of a capture must be joined to its origin.
TEST_F(GraphsTest, UnjoinedFork) {
  begin();
  order(a_, b_);
  note(b_, p_);
  EXPECT_EQ(end(), cudaErrorStreamCaptureUnjoined);
  EXPECT_TRUE(reported("did not join"));
  EXPECT_EQ(status(b_), cudaStreamCaptureStatusNone);
}

// PG "Prohibited and Unhandled Operations": captured streams and events, and handles that encompass
// them, cannot be synchronised with or queried. PG "Invalidation": the capture ends with it.
TEST_F(GraphsTest, SynchronisingInvalidatesTheCapture) {
  Event e;
  using Call = std::function<cudaError_t()>;
  const std::vector<std::pair<Call, cudaError_t>> calls = {
      {[&] { return cudaStreamSynchronize(a_); }, cudaErrorStreamCaptureUnsupported},
      {[&] { return cudaStreamQuery(a_); }, cudaErrorStreamCaptureUnsupported},
      {[&] { return cudaEventSynchronize(e); }, cudaErrorCapturedEvent},
      {[&] { return cudaEventQuery(e); }, cudaErrorCapturedEvent},
      {[&] { return cudaDeviceSynchronize(); }, cudaErrorStreamCaptureUnsupported}};
  for (const auto& [call, error] : calls) {
    begin();
    ASSERT_EQ(cudaEventRecord(e, a_), cudaSuccess);
    EXPECT_EQ(call(), error);
    EXPECT_EQ(status(a_), cudaStreamCaptureStatusInvalidated);
    EXPECT_EQ(cudaLaunchHostFunc(a_, write_note, &p_), cudaErrorStreamCaptureInvalidated);
    EXPECT_EQ(end(), cudaErrorStreamCaptureInvalidated);
  }
  EXPECT_TRUE(reported("being captured"));
}

// API "Stream Management", cudaThreadExchangeStreamCaptureMode: which threads may make unsafe calls
// such as cudaMalloc while a stream is captured.
TEST_F(GraphsTest, CaptureModes) {
  const auto allocate = [] {
    void* p = nullptr;
    const auto error = cudaMalloc(&p, 16);
    cudaFree(p);
    return error;
  };
  const auto elsewhere = [&] {
    cudaError_t error;
    std::thread([&] { error = allocate(); }).join();
    return error;
  };
  begin(cudaStreamCaptureModeRelaxed);
  EXPECT_EQ(allocate(), cudaSuccess);
  EXPECT_EQ(elsewhere(), cudaSuccess);
  EXPECT_EQ(end(), cudaSuccess);
  cudaGraphDestroy(graph_);
  begin(cudaStreamCaptureModeThreadLocal);
  EXPECT_EQ(elsewhere(), cudaSuccess);
  EXPECT_EQ(status(a_), cudaStreamCaptureStatusActive);
  EXPECT_EQ(allocate(), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(end(), cudaErrorStreamCaptureInvalidated);
  begin(cudaStreamCaptureModeGlobal);
  EXPECT_EQ(elsewhere(), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(end(), cudaErrorStreamCaptureInvalidated);
  EXPECT_TRUE(reported("cudaMalloc while a stream is being captured"));
}

// PG "Implicit Synchronization": cudaFree waits for the device, which a capture forbids. The memory
// stays allocated.
TEST_F(GraphsTest, FreeingDuringACapture) {
  void *x = nullptr, *host = nullptr;
  ASSERT_EQ(cudaMalloc(&x, 4), cudaSuccess);
  ASSERT_EQ(cudaMallocHost(&host, 4), cudaSuccess);
  begin();
  EXPECT_EQ(cudaFree(x), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(end(), cudaErrorStreamCaptureInvalidated);
  begin();
  EXPECT_EQ(cudaFreeHost(host), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(end(), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(cudaFree(x), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(host), cudaSuccess);
  EXPECT_TRUE(reported("cudaFree while a stream is being captured"));
}

// PG "Prohibited and Unhandled Operations": no wait for work outside of the capture, no merge of
// two captures; an event of a capture means nothing after it.
TEST_F(GraphsTest, CapturesAreIsolated) {
  Event outside, inside;
  ASSERT_EQ(cudaEventRecord(outside, b_), cudaSuccess);
  begin();
  EXPECT_EQ(cudaStreamWaitEvent(a_, outside, 0), cudaErrorStreamCaptureIsolation);
  EXPECT_EQ(end(), cudaErrorStreamCaptureInvalidated);
  begin();
  ASSERT_EQ(cudaStreamBeginCapture(b_, kThreadLocal), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(inside, a_), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(b_, inside, 0), cudaErrorStreamCaptureMerge);
  EXPECT_EQ(end(), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(cudaStreamEndCapture(b_, &graph_), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(cudaStreamWaitEvent(b_, inside, 0), cudaErrorCapturedEvent);
  EXPECT_TRUE(reported("another capture"));
}

// API "Stream Management", cudaStreamBeginCapture and cudaStreamEndCapture: once at a time, ended
// on the same stream and, unless relaxed, by the same thread.
TEST_F(GraphsTest, WhoMayEndACapture) {
  EXPECT_EQ(end(), cudaErrorIllegalState);
  begin();
  EXPECT_EQ(cudaStreamBeginCapture(a_, kThreadLocal), cudaErrorIllegalState);
  std::thread([&] { EXPECT_EQ(end(), cudaErrorStreamCaptureWrongThread); }).join();
  EXPECT_EQ(status(a_), cudaStreamCaptureStatusActive);
  order(a_, b_);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(b_, &graph), cudaErrorStreamCaptureUnmatched);
  EXPECT_EQ(end(), cudaErrorStreamCaptureInvalidated);
  EXPECT_TRUE(reported("another thread"));
}

// PG "Creating a Graph Using Stream Capture": a node keeps its operands, so page-locked inputs are
// read anew by each launch. Pageable ones are refused here: they would be read at some later time.
TEST_F(GraphsTest, CopiesInGraphs) {
  Pinned<int> in(1), out(1);
  OnDevice<int> x(1);
  begin();
  ASSERT_EQ(cudaMemcpyAsync(x, in, 4, cudaMemcpyHostToDevice, a_), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(out, x, 4, cudaMemcpyDeviceToHost, a_), cudaSuccess);
  instantiate();
  for (int i = 1; i <= 3; ++i) {
    in[0] = i;
    ASSERT_EQ(cudaGraphLaunch(exec_, a_), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(a_), cudaSuccess);
    EXPECT_EQ(out[0], i);
  }
  cudaGraph_t graph = nullptr;
  begin();
  int pageable = 0;
  EXPECT_EQ(cudaMemcpyAsync(x, &pageable, 4, cudaMemcpyHostToDevice, a_),
            cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(cudaStreamEndCapture(a_, &graph), cudaErrorStreamCaptureInvalidated);
  EXPECT_TRUE(reported("pageable"));
}

// A graph outlives the memory that it works on only by mistake.
TEST_F(GraphsTest, ReplayOfFreedMemory) {
  void* x = nullptr;
  ASSERT_EQ(cudaMalloc(&x, 4), cudaSuccess);
  begin();
  ASSERT_EQ(cudaMemsetAsync(x, 1, 4, a_), cudaSuccess);
  instantiate();
  ASSERT_EQ(cudaFree(x), cudaSuccess);
  ASSERT_EQ(cudaGraphLaunch(exec_, a_), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(a_), cudaErrorIllegalAddress);
  EXPECT_TRUE(reported("freed before"));
  emu::reset();
}
}  // namespace
}  // namespace cohort::test
