// SPDX-License-Identifier: Apache-2.0
// Streams and events.
#include <cuda_runtime_api.h>

#include <algorithm>

#include "tests/cuda_emulation/state.h"

using emu::enter;
using emu::fail;
using emu::Guard;
using emu::misuse;
using emu::need;
using emu::state;

namespace {
std::string name(int stream) { return " stream " + std::to_string(stream); }

cudaError_t create(cudaStream_t* s, unsigned flags, const char* api) {
  const Guard g;
  *s = nullptr;
  if (const auto e = enter(api)) return e;
  if (flags != cudaStreamNonBlocking)
    return misuse(cudaErrorInvalidValue, "streams of this project are cudaStreamNonBlocking");
  auto& all = state().streams;
  *s = new CUstream_st{emu::current_device()};
  (*s)->number = int(std::count_if(all.begin(), all.end(), [&](const CUstream_st* other) {
    return other->device == (*s)->device && !other->destroyed;
  }));
  all.push_back(*s);
  return cudaSuccess;
}

// Calls that look at the progress of captured work, which has none.
cudaError_t not_captured(cudaStream_t s, const char* api) {
  if (!s->capture) return emu::unsafe(api);
  s->capture->invalid = true;
  return misuse(cudaErrorStreamCaptureUnsupported,
                std::string(api) + " on a stream that is being captured");
}
cudaError_t not_captured(cudaEvent_t e, const char* api) {
  if (!e->capture) return emu::unsafe(api);
  e->capture->invalid = true;
  return misuse(cudaErrorCapturedEvent,
                std::string(api) + " on an event that was recorded in a capture");
}

// Makes the stream take part in the capture that the event was recorded in.
cudaError_t join(cudaStream_t s, cudaEvent_t e) {
  auto& capture = e->capture;
  if (capture->ended) {
    if (s->capture) s->capture->invalid = true;
    return misuse(cudaErrorCapturedEvent, "a wait for an event of a capture that is over");
  }
  if (capture->invalid) return fail(cudaErrorStreamCaptureInvalidated);
  if (s->capture && s->capture != capture) {
    s->capture->invalid = capture->invalid = true;
    return misuse(cudaErrorStreamCaptureMerge, "a wait for an event of another capture");
  }
  s->capture = capture;
  auto& tail = capture->tails[s];
  for (int n : e->nodes)
    if (std::find(tail.begin(), tail.end(), n) == tail.end()) tail.push_back(n);
  return cudaSuccess;
}
}  // namespace

extern "C" {
// The priority is a hint, which an order that is chosen by the test has no use for.
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* s, unsigned flags, int) {
  return create(s, flags, __func__);
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned flags) {
  return create(s, flags, __func__);
}
// Returns at once; work that is left still runs.
cudaError_t cudaStreamDestroy(cudaStream_t s) {
  const Guard g;
  if (const int e = emu::take_fault(__func__)) return fail(static_cast<cudaError_t>(e));
  const auto error = need(s);
  if (error == cudaErrorInvalidResourceHandle) return error;
  if (s->capture) s->capture->invalid = true;
  s->destroyed = true;
  emu::release_drained_streams();
  return error;
}
cudaError_t cudaStreamSynchronize(cudaStream_t s) {
  const Guard g;
  if (const auto e = enter(__func__)) return e;
  if (const auto e = need(s)) return e;
  if (const auto e = not_captured(s, __func__)) return e;
  if (emu::dropped(__func__, "synchronisation with" + name(s->number))) return cudaSuccess;
  const auto last = s->last;
  const int device = s->device;
  if (last) emu::wait_until([=] { return last->done || emu::lost(device); });
  if (last) emu::ordered_after(&last->tokens->back());
  return fail(emu::lost(device));
}
cudaError_t cudaStreamQuery(cudaStream_t s) {
  const Guard g;
  if (const auto e = enter(__func__)) return e;
  if (const auto e = need(s)) return e;
  if (const auto e = not_captured(s, __func__)) return e;
  if (!s->queue.empty()) {
    emu::poll([s] { return s->queue.empty(); });
    return fail(cudaErrorNotReady);
  }
  if (s->last) emu::ordered_after(&s->last->tokens->back());
  return cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t f, void* argument) {
  const Guard g;
  if (const auto e = enter(__func__)) return e;
  return emu::submit(
      s, [=] { return emu::Work{"host function", {}, {}, [=] { f(argument); }, {}, false}; });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  const Guard g;
  *event = nullptr;
  if (const auto e = enter(__func__)) return e;
  if (flags & ~unsigned(cudaEventBlockingSync | cudaEventDisableTiming))
    return misuse(cudaErrorInvalidValue, "these flags of events are not emulated");
  *event = new CUevent_st{emu::current_device(), !(flags & cudaEventDisableTiming)};
  state().events.insert(*event);
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const Guard g;
  if (const int e = emu::take_fault(__func__)) return fail(static_cast<cudaError_t>(e));
  const auto error = need(event);
  if (error == cudaErrorInvalidResourceHandle) return error;
  state().events.erase(event);
  delete event;
  return error;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t s) {
  const Guard g;
  if (const auto e = enter(__func__)) return e;
  if (const auto e = need(event)) return e;
  if (const auto e = need(s)) return e;
  if (event->device != s->device)
    return misuse(cudaErrorInvalidResourceHandle,
                  "an event recorded on a stream of another device");
  event->stream = s->number;
  if (s->capture) {
    if (s->capture->invalid) return fail(cudaErrorStreamCaptureInvalidated);
    event->capture = s->capture;
    event->nodes = s->capture->tails[s];
    return cudaSuccess;
  }
  event->capture = nullptr;
  const auto now = event->last = std::make_shared<emu::EventState>();
  now->device = s->device;
  return emu::submit(s, [now] {
    return emu::Work{"event record",
                     {},
                     {},
                     [now] { emu::orders_before(now.get()); },
                     [now] {
                       now->done = true;
                       now->at = emu::Clock::now();
                     },
                     false};
  });
}
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t event, unsigned flags) {
  const Guard g;
  if (const auto e = enter(__func__)) return e;
  if (const auto e = need(s)) return e;
  if (const auto e = need(event)) return e;
  if (flags != cudaEventWaitDefault)
    return misuse(cudaErrorInvalidValue, "these flags of waits are not emulated");
  if (emu::dropped(__func__, "wait of" + name(s->number) + " for" + name(event->stream)))
    return cudaSuccess;
  if (event->capture) return join(s, event);
  if (s->capture) {
    s->capture->invalid = true;
    return misuse(cudaErrorStreamCaptureIsolation, "captured work waits for work outside");
  }
  const auto last = event->last;
  if (!last) return cudaSuccess;  // never recorded: nothing to wait for
  return emu::submit(s, [last] {
    return emu::Work{"event wait for device " + std::to_string(last->device),
                     {},
                     [last] { return last->done; },
                     [last] { emu::ordered_after(last.get()); },
                     {},
                     false};
  });
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  const Guard g;
  if (const auto e = enter(__func__)) return e;
  if (const auto e = need(event)) return e;
  if (const auto e = not_captured(event, __func__)) return e;
  const auto last = event->last;
  if (!last) return cudaSuccess;
  if (emu::dropped(__func__, "query of" + name(event->stream))) return cudaSuccess;
  if (!last->done) {
    emu::poll([last] { return last->done; });
    return fail(cudaErrorNotReady);
  }
  emu::ordered_after(last.get());
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const Guard g;
  if (const auto e = enter(__func__)) return e;
  if (const auto e = need(event)) return e;
  if (const auto e = not_captured(event, __func__)) return e;
  const auto last = event->last;
  const int device = event->device;
  if (!last) return cudaSuccess;
  if (emu::dropped(__func__, "wait for" + name(event->stream))) return cudaSuccess;
  emu::wait_until([=] { return last->done || emu::lost(device); });
  emu::ordered_after(last.get());
  return fail(emu::lost(device));
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end) {
  const Guard g;
  if (const auto e = enter(__func__)) return e;
  for (const auto event : {start, end}) {
    if (const auto e = need(event)) return e;
    if (!event->last || !event->timing) return fail(cudaErrorInvalidResourceHandle);
  }
  if (!start->last->done || !end->last->done) return fail(cudaErrorNotReady);
  *ms = std::chrono::duration<float, std::milli>(end->last->at - start->last->at).count();
  return cudaSuccess;
}
}
