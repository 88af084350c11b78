// SPDX-License-Identifier: Apache-2.0
#include "comm/stream_copy.h"

#include <cstring>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace cohort {
namespace {

constexpr int64_t kLine = 64;
constexpr int64_t kLeastStreamed = 1024;

#if defined(__x86_64__)

// to: aligned to a line; whole lines.
void stream_lines(char* to, const char* from, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += kLine) {
    __m128i line[4];
    std::memcpy(line, from + i, sizeof line);
    for (int k = 0; k < 4; k++) _mm_stream_si128(reinterpret_cast<__m128i*>(to + i) + k, line[k]);
  }
  _mm_sfence();
}

#else

void stream_lines(char* to, const char* from, int64_t bytes) {
  std::memcpy(to, from, size_t(bytes));
}

#endif

}  // namespace

void stream_copy(void* to, const void* from, int64_t bytes) {
  auto* const target = static_cast<char*>(to);
  const auto* const source = static_cast<const char*>(from);
  if (bytes < kLeastStreamed) {
    if (bytes > 0) std::memcpy(target, source, size_t(bytes));
    return;
  }
  const int64_t before = -int64_t(reinterpret_cast<uintptr_t>(to)) & (kLine - 1);
  const int64_t lines = (bytes - before) / kLine * kLine;
  if (before > 0) std::memcpy(target, source, size_t(before));
  stream_lines(target + before, source + before, lines);
  const int64_t rest = bytes - before - lines;
  if (rest > 0) std::memcpy(target + before + lines, source + before + lines, size_t(rest));
}

}  // namespace cohort
