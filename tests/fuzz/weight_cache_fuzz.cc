// SPDX-License-Identifier: Apache-2.0
// A header that is accepted encodes to the very bytes it came from, and all its parts lie within
// the content. The fuzzer's bytes get the sum that a header needs, or it would never come further.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "kernels/matrix.h"
#include "worker/weight_cache.h"

namespace {

constexpr size_t kSumAt = 16, kBodyAt = 24;

// What encode() would have written around this body.
std::string with_sum(std::string_view body) {
  std::string file = cohort::encode({}).substr(0, kBodyAt);
  const uint32_t size = uint32_t(body.size());
  std::memcpy(file.data() + 12, &size, sizeof size);
  const std::string summed = file.substr(0, kSumAt) + std::string(body);
  const uint64_t sum = cohort::cache_sum(std::as_bytes(std::span(summed.data(), summed.size())));
  std::memcpy(file.data() + kSumAt, &sum, sizeof sum);
  file += body;
  file.resize((file.size() + 4095) / 4096 * 4096);
  return file;
}

void check(const std::string& file) {
  const auto header = cohort::decode_cache_header(file);
  if (!header.ok()) return;
  if (cohort::encode(*header) != file) std::abort();
  uint64_t end = 0;
  for (const cohort::CachedPart& part : header->parts) {
    if (part.offset < end || part.offset % cohort::kCacheAlignment != 0) std::abort();
    end = part.offset + uint64_t(cohort::packed_bytes(part.dtype, part.rows, part.columns));
    if (end < part.offset || end > header->content_bytes) std::abort();
  }
}

// What the fuzzer starts from, so that it need not invent the format.
std::string sample() {
  cohort::CacheHeader header{.identity = "x",
                             .content_bytes = 2 * 1024 * 64,
                             .parts = {{"a", cohort::DType::f32, 16, 1024, 0},
                                       {"b", cohort::DType::f32, 16, 1024, 1024 * 64}},
                             .sums = {7}};
  const std::string file = cohort::encode(header);
  uint32_t size = 0;
  std::memcpy(&size, file.data() + 12, sizeof size);
  return file.substr(kBodyAt, size);
}

}  // namespace

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned int seed) {
  static const std::string start = sample();
  if (seed % 64 == 0 && start.size() <= max_size) {
    std::memcpy(data, start.data(), start.size());
    size = start.size();
  }
  return LLVMFuzzerMutate(data, size, max_size);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  (void)cohort::decode_cache_header(bytes);
  check(with_sum(bytes));
  return 0;
}
