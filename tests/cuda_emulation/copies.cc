// SPDX-License-Identifier: Apache-2.0
// Copies and fills, with what CUDA promises and does not promise about host memory: page-locked
// memory is read and written when the copy runs, pageable memory before the call returns.
#include <cuda_runtime_api.h>

#include <cstring>

#include "tests/cuda_emulation/memory.h"

namespace {
using emu::Kind;
using emu::misuse;
using emu::Place;

constexpr std::size_t kStaged = 64 << 10;  // larger copies from pageable memory wait for the stream

struct Copy {
  char* dst;
  std::size_t dst_pitch;
  const char* src;
  std::size_t src_pitch;
  std::size_t width, height;  // height rows of width bytes

  std::size_t dst_span() const { return (height - 1) * dst_pitch + width; }
  std::size_t src_span() const { return (height - 1) * src_pitch + width; }
  void run() const {
    for (std::size_t row = 0; row < height; ++row) {
      emu::reads(src + row * src_pitch, width);
      emu::writes(dst + row * dst_pitch, width);
      std::memcpy(dst + row * dst_pitch, src + row * src_pitch, width);
    }
  }
};

cudaError_t check_kind(const Place& dst, const Place& src, cudaMemcpyKind kind) {
  if (kind == cudaMemcpyDefault) return cudaSuccess;
  const bool to = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if ((dst.kind == Kind::device) == to && (src.kind == Kind::device) == from) return cudaSuccess;
  return misuse(cudaErrorInvalidValue, "a copy whose pointers do not match its direction");
}

// `device`: of the stream. Peer access is never enabled in this project.
cudaError_t check_places(const Copy& c, const Place& dst, const Place& src, cudaMemcpyKind kind,
                         int device) {
  if (!dst.wrong.empty()) return misuse(cudaErrorInvalidValue, "a copy writes " + dst.wrong);
  if (!src.wrong.empty()) return misuse(cudaErrorInvalidValue, "a copy reads " + src.wrong);
  if (const auto e = check_kind(dst, src, kind)) return e;
  for (const Place& p : {dst, src})
    if (p.kind == Kind::device && p.device != device)
      return misuse(cudaErrorInvalidValue, "a copy on device " + std::to_string(device) +
                                               " of memory of device " + std::to_string(p.device));
  if (c.dst < c.src + c.src_span() && c.src < c.dst + c.dst_span())
    return misuse(cudaErrorInvalidValue, "a copy whose source and destination overlap");
  return cudaSuccess;
}

// Memory can go between the call and the copy: freed, or not allocated yet by its stream.
bool usable(const void* p, const Place& place, int device) {
  if (place.kind == Kind::pageable || emu::usable_now(p)) return true;
  emu::device_fault(device, cudaErrorIllegalAddress,
                    "work ran on memory that was freed before, or was not allocated yet");
  return false;
}

// Submits it and, where the call must not return earlier, waits until it has run.
cudaError_t submit(const Copy& c, const Place& dst, const Place& src, cudaStream_t s,
                   std::shared_ptr<std::vector<char>> staged, bool wait) {
  const auto end = std::make_shared<emu::EventState>();
  const int device = s->device;
  const auto e = emu::submit(s, [=] {
    return emu::Work{"copy",
                     {},
                     {},
                     [=, keep = staged] {
                       if (!usable(c.dst, dst, device) || !usable(c.src, src, device)) return;
                       c.run();
                       emu::orders_before(end.get());
                     },
                     [end] { end->done = true; },
                     false};
  });
  if (e || !wait) return e;
  emu::wait_until([=] { return end->done || emu::lost(device); });
  emu::ordered_after(end.get());
  return emu::fail(emu::lost(device));
}

cudaError_t copy(Copy c, cudaMemcpyKind kind, cudaStream_t s) {
  if (const auto e = emu::need(s)) return e;
  if (c.width > c.dst_pitch || c.width > c.src_pitch) return emu::fail(cudaErrorInvalidPitchValue);
  if (c.width == 0 || c.height == 0) return cudaSuccess;
  const Place dst = emu::locate(c.dst, c.dst_span()), src = emu::locate(c.src, c.src_span());
  if (const auto e = check_places(c, dst, src, kind, s->device)) return e;
  const bool pageable_dst = dst.kind == Kind::pageable, pageable_src = src.kind == Kind::pageable;
  if (s->capture && (pageable_dst || pageable_src)) {
    s->capture->invalid = true;
    return misuse(cudaErrorStreamCaptureUnsupported, "a captured copy of pageable memory");
  }
  const bool host_only = dst.kind != Kind::device && src.kind != Kind::device;
  const bool small = c.width * c.height <= kStaged;
  std::shared_ptr<std::vector<char>> staged;
  if (pageable_src && !host_only && small) {
    staged = std::make_shared<std::vector<char>>(c.width * c.height);
    const Copy stage{staged->data(), c.width, c.src, c.src_pitch, c.width, c.height};
    stage.run();
    c.src = staged->data();
    c.src_pitch = c.width;
  }
  const bool wait = pageable_dst || host_only || (pageable_src && !small);
  return submit(c, dst, src, s, staged, wait && !s->capture);
}
}  // namespace

extern "C" {
cudaError_t cudaMemcpyAsync(void* dst, const void* src, size_t n, cudaMemcpyKind kind,
                            cudaStream_t s) {
  const emu::Guard g;
  if (const auto e = emu::enter(__func__)) return e;
  if (emu::dropped(__func__, "copy of " + std::to_string(n) + " bytes")) return cudaSuccess;
  return copy({static_cast<char*>(dst), n, static_cast<const char*>(src), n, n, 1}, kind, s);
}
cudaError_t cudaMemcpy2DAsync(void* dst, size_t dst_pitch, const void* src, size_t src_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind, cudaStream_t s) {
  const emu::Guard g;
  if (const auto e = emu::enter(__func__)) return e;
  return copy(
      {static_cast<char*>(dst), dst_pitch, static_cast<const char*>(src), src_pitch, width, height},
      kind, s);
}
// Runs at once: the default stream, where it belongs, does not wait for non-blocking streams.
cudaError_t cudaMemcpy(void* dst, const void* src, size_t n, cudaMemcpyKind kind) {
  const emu::Guard g;
  if (const auto e = emu::enter(__func__)) return e;
  if (const auto e = emu::unsafe(__func__)) return e;
  if (n == 0) return cudaSuccess;
  const Copy c{static_cast<char*>(dst), n, static_cast<const char*>(src), n, n, 1};
  const Place to = emu::locate(dst, n), from = emu::locate(src, n);
  if (const auto e = check_places(c, to, from, kind, emu::current_device())) return e;
  c.run();
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* p, int value, size_t n, cudaStream_t s) {
  const emu::Guard g;
  if (const auto e = emu::enter(__func__)) return e;
  if (const auto e = emu::need(s)) return e;
  if (n == 0) return cudaSuccess;
  const Place place = emu::locate(p, n);
  if (!place.wrong.empty()) return misuse(cudaErrorInvalidValue, "a fill writes " + place.wrong);
  if (place.kind != Kind::device || place.device != s->device)
    return misuse(cudaErrorInvalidValue, "a fill of what is not memory of the stream's device");
  const int device = s->device;
  if (emu::dropped(__func__, "fill of " + std::to_string(n) + " bytes")) return cudaSuccess;
  return emu::submit(s, [=] {
    return emu::Work{"fill",
                     {},
                     {},
                     [=] {
                       if (!usable(p, place, device)) return;
                       emu::writes(p, n);
                       std::memset(p, value, n);
                     },
                     {},
                     false};
  });
}
}
