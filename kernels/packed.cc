// SPDX-License-Identifier: Apache-2.0
#include "kernels/packed.h"

#include <cstring>

#include "base/half.h"
#include "kernels/matrix.h"
#include "kernels/panel_scales.h"

namespace cohort {
namespace {

template <class T>
T load(const std::byte* in) {
  T value;
  std::memcpy(&value, in, sizeof value);
  return value;
}

// 32 columns of one row, as they go into a panel.
struct RowBlock {
  uint8_t quants[32];  // 16 of them for nibbles
  uint16_t floats[2];  // f16 scale and minimum, of the block or its super-block
  int8_t factors[2];   // of types with super-blocks
};

void read_5bit(const std::byte* quants, uint32_t high, RowBlock& out) {
  for (int i = 0; i < 16; i++) {
    const int byte = int(quants[i]);
    out.quants[i] = uint8_t((byte & 15) | int(high >> i & 1) << 4);
    out.quants[i + 16] = uint8_t((byte >> 4) | int(high >> (i + 16) & 1) << 4);
  }
}

// Six-bit scale and minimum of group g of 32 of a q4_k or q5_k block. Its minima are subtracted, a
// panel's are added.
void read_group_scale(const std::byte* in, int g, RowBlock& out) {
  const auto byte = [&](int i) { return int(in[4 + i]); };
  int scale, minimum;
  if (g < 4) {
    scale = byte(g) & 63;
    minimum = byte(g + 4) & 63;
  } else {
    scale = (byte(g + 4) & 15) | byte(g - 4) >> 6 << 4;
    minimum = byte(g + 4) >> 4 | byte(g) >> 6 << 4;
  }
  out.floats[0] = load<uint16_t>(in);
  out.floats[1] = load<uint16_t>(in + 2) ^ 0x8000;
  out.factors[0] = int8_t(scale);
  out.factors[1] = int8_t(minimum);
}

// Nibbles of group g: 32 bytes hold two groups, low nibbles first.
void read_nibbles(const std::byte* in, int g, uint8_t (&low)[32]) {
  uint8_t bytes[32];
  std::memcpy(bytes, in + g / 2 * 32, 32);
  if (g % 2 == 0)
    for (int i = 0; i < 32; i++) low[i] = bytes[i] & 15;
  else
    for (int i = 0; i < 32; i++) low[i] = bytes[i] >> 4;
}

// Repacked as columns i and i + 16.
void read_q4_k(const std::byte* in, int g, RowBlock& out) {
  read_group_scale(in, g, out);
  uint8_t nibbles[32];
  read_nibbles(in + 16, g, nibbles);
  for (int i = 0; i < 16; i++) out.quants[i] = uint8_t(nibbles[i] | nibbles[i + 16] << 4);
}

void read_q5_k(const std::byte* in, int g, RowBlock& out) {
  read_group_scale(in, g, out);
  uint8_t nibbles[32];
  read_nibbles(in + 48, g, nibbles);
  for (int i = 0; i < 32; i++)
    out.quants[i] = uint8_t(nibbles[i] | (int(in[16 + i]) >> g & 1) << 4);
}

void read_q6_k(const std::byte* in, int g, RowBlock& out) {
  out.floats[0] = load<uint16_t>(in + 208);
  const int half = g / 4, r = g % 4;
  const std::byte* low = in + half * 64 + r % 2 * 32;
  const std::byte* high = in + 128 + half * 32;
  for (int i = 0; i < 32; i++)
    out.quants[i] =
        uint8_t(((int(low[i]) >> r / 2 * 4 & 15) | (int(high[i]) >> 2 * r & 3) << 4) - 32);
  std::memcpy(out.factors, in + 192 + g * 2, 2);
}

// Columns 32 b .. of a stored row.
template <DType kType>
void read_block(const std::byte* row, int64_t b, const DTypeInfo& about, RowBlock& out) {
  const int per_block = about.block_elements / kQuantBlock, g = int(b % per_block);
  const std::byte* in = row + b / per_block * about.block_bytes;
  if constexpr (kType == DType::q4_k) return read_q4_k(in, g, out);
  if constexpr (kType == DType::q5_k) return read_q5_k(in, g, out);
  if constexpr (kType == DType::q6_k) return read_q6_k(in, g, out);
  std::memcpy(out.floats, in, quant_form(kType).minimum ? 4 : 2);
  if constexpr (kType == DType::q8_0) std::memcpy(out.quants, in + 2, 32);
  if constexpr (kType == DType::q4_0) std::memcpy(out.quants, in + 2, 16);
  if constexpr (kType == DType::q4_1) std::memcpy(out.quants, in + 4, 16);
  if constexpr (kType == DType::q5_0) read_5bit(in + 6, load<uint32_t>(in + 2), out);
  if constexpr (kType == DType::q5_1) read_5bit(in + 8, load<uint32_t>(in + 4), out);
}

// Lane r of block b of a record.
void put_scales(QuantForm form, const RowBlock& block, int b, int r, std::byte* record) {
  for (int i = 0; b == 0 && i < (form.minimum ? 2 : 1); i++)
    std::memcpy(record + (i * kPanelRows + r) * 2, &block.floats[i], 2);
  for (int i = 0; form.super && i < 2; i++)
    record[factors_at(form, b) + i * kPanelRows + r] = std::byte(block.factors[i]);
}

// Any type, any number of rows, one block of one row after the other. Lanes without a row are left.
template <DType kType>
void pack_blocks(int64_t columns, int rows, const std::byte* stored, std::byte* panel) {
  constexpr QuantForm kForm = quant_form(kType);
  constexpr int kVectors = kForm.nibbles ? 4 : 8;
  const PanelShape shape = panel_shape(kForm, columns);
  const DTypeInfo& about = info(kType);
  const int64_t row_bytes = bytes_of(kType, columns);
  for (int64_t b = 0; b < shape.blocks; b++)
    for (int r = 0; r < rows; r++) {
      RowBlock block;
      read_block<kType>(stored + r * row_bytes, b, about, block);
      put_scales(kForm, block, int(b % record_blocks(kForm)), r,
                 panel + record_at(kForm, shape, b));
      std::byte* to = panel + shape.quants_at + b * shape.quant_bytes + r * 4;
      for (int g = 0; g < kVectors; g++) std::memcpy(to + g * 64, block.quants + g * 4, 4);
    }
}

// Sixteen bytes as the compiler's vectors: every processor we know has these.
using Words = uint32_t __attribute__((vector_size(16)));
using Halves = uint16_t __attribute__((vector_size(16)));

struct Square {
  Words row[4];
};

inline Words words_at(const std::byte* in) {
  Words words;
  std::memcpy(&words, in, sizeof words);
  return words;
}

inline Halves halves_at(const std::byte* in) {
  Halves halves;
  std::memcpy(&halves, in, sizeof halves);
  return halves;
}

[[gnu::always_inline]] inline Square transposed(const Square& in) {
  const Words a = __builtin_shufflevector(in.row[0], in.row[1], 0, 4, 1, 5);
  const Words b = __builtin_shufflevector(in.row[2], in.row[3], 0, 4, 1, 5);
  const Words c = __builtin_shufflevector(in.row[0], in.row[1], 2, 6, 3, 7);
  const Words d = __builtin_shufflevector(in.row[2], in.row[3], 2, 6, 3, 7);
  return {{__builtin_shufflevector(a, b, 0, 1, 4, 5), __builtin_shufflevector(a, b, 2, 3, 6, 7),
           __builtin_shufflevector(c, d, 0, 1, 4, 5), __builtin_shufflevector(c, d, 2, 3, 6, 7)}};
}

// Four words of each of four rows, `stride` bytes apart, become a quarter of four vectors of 64
// bytes.
[[gnu::always_inline]] inline void turn_words(const std::byte* in, int64_t stride, std::byte* out) {
  Square square;
  for (int i = 0; i < 4; i++) square.row[i] = words_at(in + i * stride);
  square = transposed(square);
  for (int i = 0; i < 4; i++) std::memcpy(out + i * 64, &square.row[i], 16);
}

// Eight 16-bit columns of each of eight rows become half of eight vectors of 32 bytes: words of two
// rows, then as above.
[[gnu::always_inline]] inline void turn_halves(const std::byte* in, int64_t stride,
                                               std::byte* out) {
  Square low, high;
  for (int i = 0; i < 4; i++) {
    const Halves a = halves_at(in + 2 * i * stride), b = halves_at(in + (2 * i + 1) * stride);
    low.row[i] = Words(__builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11));
    high.row[i] = Words(__builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15));
  }
  low = transposed(low);
  high = transposed(high);
  for (int i = 0; i < 4; i++) {
    std::memcpy(out + i * 32, &low.row[i], 16);
    std::memcpy(out + (i + 4) * 32, &high.row[i], 16);
  }
}

// Sixteen rows of a type whose stored quants are those of the panel: a transposition of words.
template <DType kType>
void pack_words(int64_t columns, const std::byte* stored, std::byte* panel) {
  constexpr QuantForm kForm = quant_form(kType);
  constexpr int kTurns = kForm.nibbles ? 1 : 2;
  constexpr int64_t kQuantsAt = kForm.minimum ? 4 : 2, kBytes = kQuantsAt + kTurns * 16;
  const PanelShape shape = panel_shape(kForm, columns);
  const int64_t row_bytes = shape.blocks * kBytes;
  for (int64_t b = 0; b < shape.blocks; b++) {
    const std::byte* in = stored + b * kBytes;
    for (int r = 0; r < kPanelRows; r++) {
      std::byte* record = panel + b * shape.record_bytes;
      std::memcpy(record + r * 2, in + r * row_bytes, 2);
      if (kForm.minimum) std::memcpy(record + 32 + r * 2, in + r * row_bytes + 2, 2);
    }
    std::byte* out = panel + shape.quants_at + b * shape.quant_bytes;
    for (int r = 0; r < kPanelRows; r += 4)
      for (int i = 0; i < kTurns; i++)
        turn_words(in + r * row_bytes + kQuantsAt + 16 * i, row_bytes, out + 256 * i + r * 4);
  }
}

template <DType kType>
void pack_quants(int64_t columns, int rows, const std::byte* stored, std::byte* panel) {
  constexpr bool kAsStored = kType == DType::q4_0 || kType == DType::q4_1 || kType == DType::q8_0;
  if constexpr (kAsStored)
    if (rows == kPanelRows) return pack_words<kType>(columns, stored, panel);
  pack_blocks<kType>(columns, rows, stored, panel);
}

// Columns of 16 rows, one cache line of each row: lines of rows that lie a power of two apart fall
// out of the first-level cache together, so a few rows are done with at a time.
template <size_t kElement>
[[gnu::always_inline]] inline void turn_lines(const std::byte* in, int64_t stride, std::byte* out) {
  constexpr int kRows = kElement == 4 ? 4 : 8;
  for (int r = 0; r < kPanelRows; r += kRows)
    for (int i = 0; i < 4; i++) {
      const std::byte* from = in + r * stride + i * 16;
      std::byte* to = out + i * 256 + r * int(kElement);
      if constexpr (kElement == 4)
        turn_words(from, stride, to);
      else
        turn_halves(from, stride, to);
    }
}

// kElement: 2 or 4 bytes of each weight.
template <size_t kElement>
void pack_plain(int64_t columns, int rows, const std::byte* stored, std::byte* panel) {
  constexpr int64_t kTurned = 64 / kElement;  // columns at once
  const int64_t row_bytes = columns * int64_t(kElement);
  int64_t k = 0;
  for (; rows == kPanelRows && k + kTurned <= columns; k += kTurned)
    turn_lines<kElement>(stored + k * int64_t(kElement), row_bytes,
                         panel + size_t(k) * kPanelRows * kElement);
  for (; k < columns; k++)
    for (int r = 0; r < rows; r++)
      std::memcpy(panel + (size_t(k) * kPanelRows + size_t(r)) * kElement,
                  stored + r * row_bytes + k * int64_t(kElement), kElement);
}

void unpack_quants(DType type, int64_t columns, const std::byte* panel, int lane, float* out) {
  const QuantForm form = quant_form(type);
  const PanelShape shape = panel_shape(form, columns);
  const PanelScales scales(form, shape, panel);
  constexpr int kHalf = kQuantBlock / 2;
  for (int64_t i = 0; i < 2 * shape.blocks; i++) {
    const int64_t b = i / 2;
    const int half = int(i % 2);
    const float scale = scales.scale(b, form.halves ? half : 0, lane);
    const float minimum = scales.minimum(b, lane);
    const std::byte* quants = panel + shape.quants_at + b * shape.quant_bytes + lane * 4;
    for (int c = 0; c < kHalf; c++, out++) {
      const int at = form.nibbles ? c : half * kHalf + c;
      const std::byte byte = quants[at / 4 * 64 + at % 4];
      const int q = (form.nibbles ? int(byte) >> half * 4 & 15 : int(int8_t(byte))) - form.offset;
      // The product is exact, so this rounds once at most, as separate operations would.
      *out = form.minimum ? scale * float(q) + minimum : scale * float(q);
    }
  }
}

}  // namespace

int64_t panel_bytes(DType type, int64_t columns) {
  if (is_quantized(type)) return panel_shape(quant_form(type), columns).bytes;
  return plain_panel_bytes(info(type).block_bytes, columns);
}

int64_t packed_bytes(DType type, int64_t rows, int64_t columns) {
  return (rows + kPanelRows - 1) / kPanelRows * panel_bytes(type, columns);
}

void pack_panel(DType type, int64_t columns, int rows, const std::byte* stored, std::byte* panel) {
  if (rows < kPanelRows) std::memset(panel, 0, size_t(panel_bytes(type, columns)));
  if (!is_quantized(type)) {
    if (info(type).block_bytes == 4) return pack_plain<4>(columns, rows, stored, panel);
    return pack_plain<2>(columns, rows, stored, panel);
  }
  const QuantForm form = quant_form(type);
  const PanelShape shape = panel_shape(form, columns);
  const int64_t padding = record_at(form, shape, shape.blocks);
  std::memset(panel + padding, 0, size_t(shape.quants_at - padding));
  for_form(type, [&](auto f) { pack_quants<f.type>(columns, rows, stored, panel); });
}

void unpack_row(DType type, int64_t columns, const std::byte* panel, int lane, float* out) {
  if (is_quantized(type)) return unpack_quants(type, columns, panel, lane, out);
  for (int64_t k = 0; k < columns; k++) {
    const std::byte* at = panel + (k * kPanelRows + lane) * info(type).block_bytes;
    out[k] = type == DType::f32    ? load<float>(at)
             : type == DType::bf16 ? bf16_to_float(load<uint16_t>(at))
                                   : half_to_float(load<uint16_t>(at));
  }
}

}  // namespace cohort
