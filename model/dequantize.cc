// SPDX-License-Identifier: Apache-2.0
// What stored weights mean. Block layouts are those of ggml (ggml-common.h): little-endian, without
// padding. q4_0, q4_1, q5_0, q5_1 and q8_0 have 32 elements and one 16-bit scale a block; the _k
// types have 256 elements, cut into 8 or 16 groups with small integer scales of their own.
#include <cstring>

#include "base/check.h"
#include "base/half.h"
#include "model/checkpoint.h"

namespace cohort {
namespace {

// Blocks in a file have no alignment beyond a byte.
template <class T>
T load(const std::byte* in) {
  T value;
  std::memcpy(&value, in, sizeof value);
  return value;
}
float load_half(const std::byte* in) { return half_to_float(load<uint16_t>(in)); }
int byte_at(const std::byte* in, int i) { return int(in[i]); }

// {f16 scale, i8 quants[32]}
void block_q8_0(const std::byte* in, float* out) {
  const float scale = load_half(in);
  for (int i = 0; i < 32; i++) out[i] = scale * float(load<int8_t>(in + 2 + i));
}

// {f16 scale, nibbles[16]}: elements i and i + 16 share byte i, low nibble first.
void block_q4_0(const std::byte* in, float* out) {
  const float scale = load_half(in);
  for (int i = 0; i < 16; i++) {
    const int byte = byte_at(in + 2, i);
    out[i] = scale * float((byte & 15) - 8);
    out[i + 16] = scale * float((byte >> 4) - 8);
  }
}

// {f16 scale, f16 minimum, nibbles[16]}
void block_q4_1(const std::byte* in, float* out) {
  const float scale = load_half(in), minimum = load_half(in + 2);
  for (int i = 0; i < 16; i++) {
    const int byte = byte_at(in + 4, i);
    out[i] = scale * float(byte & 15) + minimum;
    out[i + 16] = scale * float(byte >> 4) + minimum;
  }
}

// A 5-bit value: its low bits from a nibble, its fifth from bit i of `high`.
int five_bits(int nibble, uint32_t high, int i) { return nibble | int(high >> i & 1) << 4; }

// {f16 scale, u32 fifth bits, nibbles[16]}
void block_q5_0(const std::byte* in, float* out) {
  const float scale = load_half(in);
  const uint32_t high = load<uint32_t>(in + 2);
  for (int i = 0; i < 16; i++) {
    const int byte = byte_at(in + 6, i);
    out[i] = scale * float(five_bits(byte & 15, high, i) - 16);
    out[i + 16] = scale * float(five_bits(byte >> 4, high, i + 16) - 16);
  }
}

// {f16 scale, f16 minimum, u32 fifth bits, nibbles[16]}
void block_q5_1(const std::byte* in, float* out) {
  const float scale = load_half(in), minimum = load_half(in + 2);
  const uint32_t high = load<uint32_t>(in + 4);
  for (int i = 0; i < 16; i++) {
    const int byte = byte_at(in + 8, i);
    out[i] = scale * float(five_bits(byte & 15, high, i)) + minimum;
    out[i + 16] = scale * float(five_bits(byte >> 4, high, i + 16)) + minimum;
  }
}

// q4_k and q5_k keep 8 six-bit scales and 8 six-bit minima in 12 bytes: the first four of each in
// the low six bits of bytes 0..3 and 4..7; the others as low nibbles (scales) and high nibbles
// (minima) of bytes 8..11, their top two bits in the top bits of bytes 0..3 and 4..7.
struct GroupScale {
  int scale, minimum;
};
GroupScale group_scale(const std::byte* packed, int group) {
  if (group < 4) return {byte_at(packed, group) & 63, byte_at(packed, group + 4) & 63};
  const int low = byte_at(packed, group + 4);
  return {(low & 15) | byte_at(packed, group - 4) >> 6 << 4,
          low >> 4 | byte_at(packed, group) >> 6 << 4};
}

// {f16 scale, f16 minimum, packed scales[12], nibbles[128]}: 32 bytes hold two groups of 32.
void block_q4_k(const std::byte* in, float* out) {
  const float scale = load_half(in), minimum = load_half(in + 2);
  for (int group = 0; group < 8; group++) {
    const GroupScale s = group_scale(in + 4, group);
    const float step = scale * float(s.scale), offset = minimum * float(s.minimum);
    const std::byte* nibbles = in + 16 + group / 2 * 32;
    for (int i = 0; i < 32; i++)
      *out++ = step * float(byte_at(nibbles, i) >> group % 2 * 4 & 15) - offset;
  }
}

// As q4_k, with fifth bits[32] before the nibbles: bit g of byte i is that of element i of group g.
void block_q5_k(const std::byte* in, float* out) {
  const float scale = load_half(in), minimum = load_half(in + 2);
  for (int group = 0; group < 8; group++) {
    const GroupScale s = group_scale(in + 4, group);
    const float step = scale * float(s.scale), offset = minimum * float(s.minimum);
    const std::byte* nibbles = in + 48 + group / 2 * 32;
    for (int i = 0; i < 32; i++) {
      const int low = byte_at(nibbles, i) >> group % 2 * 4 & 15;
      *out++ = step * float(low | (byte_at(in + 16, i) >> group & 1) << 4) - offset;
    }
  }
}

// {low nibbles[128], high pairs of bits[64], i8 scales[16], f16 scale}: 16 groups of 16. Each half
// of 128 elements is four runs of 32: run r takes its nibbles from bytes r % 2 * 32 (low nibbles
// for runs 0 and 1) and its two high bits from bits 2r of the 32 bytes of its half.
void block_q6_k(const std::byte* in, float* out) {
  const float scale = load_half(in + 208);
  for (int run = 0; run < 8; run++) {
    const int half = run / 4, r = run % 4;
    const std::byte* low = in + half * 64 + r % 2 * 32;
    const std::byte* high = in + 128 + half * 32;
    for (int i = 0; i < 32; i++) {
      const int value = (byte_at(low, i) >> r / 2 * 4 & 15) | (byte_at(high, i) >> 2 * r & 3) << 4;
      const float step = scale * float(load<int8_t>(in + 192 + run * 2 + i / 16));
      *out++ = step * float(value - 32);
    }
  }
}

using BlockFunction = void (*)(const std::byte* in, float* out);

BlockFunction block_function(DType type) {
  switch (type) {
    case DType::f32:
      return [](const std::byte* in, float* out) { *out = load<float>(in); };
    case DType::f16:
      return [](const std::byte* in, float* out) { *out = load_half(in); };
    case DType::bf16:
      return [](const std::byte* in, float* out) { *out = bf16_to_float(load<uint16_t>(in)); };
    case DType::q8_0:
      return block_q8_0;
    case DType::q4_0:
      return block_q4_0;
    case DType::q4_1:
      return block_q4_1;
    case DType::q5_0:
      return block_q5_0;
    case DType::q5_1:
      return block_q5_1;
    case DType::q4_k:
      return block_q4_k;
    case DType::q5_k:
      return block_q5_k;
    case DType::q6_k:
      return block_q6_k;
    case DType::i32:
    case DType::i8:
    case DType::f8_e4m3:
      break;
  }
  return nullptr;
}

}  // namespace

void dequantize(DType type, const std::byte* in, int64_t n, float* out) {
  const BlockFunction block = block_function(type);
  COHORT_CHECK_MSG(block != nullptr, concat(name(type), " is not a type of weights"));
  const DTypeInfo& about = info(type);
  COHORT_CHECK_EQ(n % about.block_elements, 0);
  for (int64_t done = 0; done < n; done += about.block_elements) {
    block(in, out + done);
    in += about.block_bytes;
  }
}

}  // namespace cohort
