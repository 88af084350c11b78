// SPDX-License-Identifier: Apache-2.0
// Sums of the emulated NCCL. The manual promises no order of the ranks; a ring starts every chunk
// at another rank and rounds to the type at every step, and so does this.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <algorithm>
#include <cstdlib>
#include <type_traits>

#include "tests/cuda_emulation/nccl_comm.h"

namespace emu::nccl {
namespace {
constexpr std::size_t kChunk = 64;  // elements that are reduced in one order

std::uint64_t seed() {
  const char* text = std::getenv("COHORT_EMULATED_NCCL_SEED");
  return text != nullptr ? std::strtoull(text, nullptr, 10) : 0;
}

template <class T>
T combine(std::int32_t op, T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;  // sums and products wrap around
    if (op == ncclSum) return T(U(U(a) + U(b)));
    if (op == ncclProd) return T(std::uint64_t(a) * std::uint64_t(b));
    return op == ncclMax ? std::max(a, b) : std::min(a, b);
  } else if constexpr (std::is_same_v<T, double>) {
    if (op == ncclSum) return a + b;
    if (op == ncclProd) return a * b;
    return op == ncclMax ? std::max(a, b) : std::min(a, b);
  } else {
    const float x(a), y(b);
    if (op == ncclSum) return T(x + y);
    if (op == ncclProd) return T(x * y);
    return T(op == ncclMax ? std::max(x, y) : std::min(x, y));
  }
}

template <class T>
void reduce_as(std::int32_t op, std::uint64_t number, const std::vector<const char*>& in,
               std::size_t from, std::size_t n, char* out) {
  const std::size_t ranks = in.size();
  for (std::size_t i = 0; i < n;) {
    const std::size_t chunk = (from + i) / kChunk;
    const std::size_t end = std::min(n, (chunk + 1) * kChunk - from);
    const std::uint64_t mix = (number + seed()) * 0x9e3779b97f4a7c15u + chunk * 0xd1b54a32d192ed03u;
    const std::size_t start = (mix >> 32) % ranks, step = (mix >> 60) & 1 ? ranks - 1 : 1;
    auto* to = reinterpret_cast<T*>(out);
    for (std::size_t q = 0; q < ranks; ++q) {
      const auto* x = reinterpret_cast<const T*>(in[(start + q * step) % ranks]) + from;
      for (std::size_t e = i; e < end; ++e) to[e] = q == 0 ? x[e] : combine<T>(op, to[e], x[e]);
    }
    i = end;
  }
}
}  // namespace

std::size_t width(std::int32_t type) {
  static const std::size_t bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return bytes[type];
}

void reduce(const Call& call, std::uint64_t number, const std::vector<const char*>& in,
            std::size_t from, std::size_t n, char* out) {
  const auto op = call.op;
  switch (ncclDataType_t(call.type)) {
    case ncclInt8:
      return reduce_as<std::int8_t>(op, number, in, from, n, out);
    case ncclUint8:
      return reduce_as<std::uint8_t>(op, number, in, from, n, out);
    case ncclInt32:
      return reduce_as<std::int32_t>(op, number, in, from, n, out);
    case ncclUint32:
      return reduce_as<std::uint32_t>(op, number, in, from, n, out);
    case ncclInt64:
      return reduce_as<std::int64_t>(op, number, in, from, n, out);
    case ncclUint64:
      return reduce_as<std::uint64_t>(op, number, in, from, n, out);
    case ncclFloat16:
      return reduce_as<__half>(op, number, in, from, n, out);
    case ncclFloat32:
      return reduce_as<float>(op, number, in, from, n, out);
    case ncclFloat64:
      return reduce_as<double>(op, number, in, from, n, out);
    case ncclBfloat16:
      return reduce_as<__nv_bfloat16>(op, number, in, from, n, out);
    case ncclFloat8e4m3:
      return reduce_as<__nv_fp8_e4m3>(op, number, in, from, n, out);
    case ncclFloat8e5m2:
      return reduce_as<__nv_fp8_e5m2>(op, number, in, from, n, out);
    case ncclNumTypes:
      break;
  }
  raise("a reduction of an unknown type");
}

}  // namespace emu::nccl
