// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "base/device_cuda.h"

namespace cohort {
namespace {

void drop(cudaGraph_t graph) {
  if (graph != nullptr) cuda_release(cudaGraphDestroy(graph), "cudaGraphDestroy");
}

// What `enqueue` puts on the stream. Whatever goes wrong, the stream captures no more afterwards.
cudaGraph_t record(cudaStream_t stream, const std::function<void()>& enqueue) {
  cudaGraph_t graph = nullptr;
  cuda_check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
             "cudaStreamBeginCapture");
  try {
    enqueue();
  } catch (...) {
    cuda_release(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    drop(graph);
    throw;
  }
  const cudaError_t error = cudaStreamEndCapture(stream, &graph);
  if (error != cudaSuccess) {
    drop(graph);
    throw Failure(cuda_status(error, "cudaStreamEndCapture"));
  }
  return graph;
}

}  // namespace

CudaGraph CudaGraph::capture(CudaDevice& device, const std::function<void()>& enqueue) {
  device.use();
  const cudaGraph_t graph = record(device.compute(), enqueue);
  CudaGraph made;
  const cudaError_t error = cudaGraphInstantiate(&made.exec_, graph, 0);
  drop(graph);
  cuda_check(error, "cudaGraphInstantiate");
  // Else the first launch pays for it.
  cuda_check(cudaGraphUpload(made.exec_, device.compute()), "cudaGraphUpload");
  return made;
}

CudaGraph::~CudaGraph() {
  if (exec_ != nullptr) cuda_release(cudaGraphExecDestroy(exec_), "cudaGraphExecDestroy");
}

CudaGraph::CudaGraph(CudaGraph&& other) noexcept : exec_(std::exchange(other.exec_, nullptr)) {}

CudaGraph& CudaGraph::operator=(CudaGraph&& other) noexcept {
  std::swap(exec_, other.exec_);
  return *this;
}

void CudaGraph::launch(cudaStream_t stream) const {
  cuda_check(cudaGraphLaunch(exec_, stream), "cudaGraphLaunch");
}

}  // namespace cohort
