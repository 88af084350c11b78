// SPDX-License-Identifier: Apache-2.0
#include "kernels/packed.h"

#include <cstring>

#include "base/half.h"
#include "kernels/matrix.h"

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
  uint8_t quants[32];         // 16 of them for nibbles
  std::byte scales[8];        // one or two, f16 or f32
  std::byte minimum[4] = {};  // f16 or f32
};

void set_wide(RowBlock& out, float scale, float minimum) {
  std::memcpy(out.scales, &scale, 4);
  std::memcpy(out.minimum, &minimum, 4);
}

void read_5bit(const std::byte* quants, uint32_t high, int offset, RowBlock& out) {
  for (int i = 0; i < 16; i++) {
    const int byte = int(quants[i]);
    out.quants[i] = uint8_t(((byte & 15) | int(high >> i & 1) << 4) - offset);
    out.quants[i + 16] = uint8_t(((byte >> 4) | int(high >> (i + 16) & 1) << 4) - offset);
  }
}

// Six-bit scale and minimum of group g of 32 of a q4_k or q5_k block.
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
  set_wide(out, half_to_float(load<uint16_t>(in)) * float(scale),
           -(half_to_float(load<uint16_t>(in + 2)) * float(minimum)));
}

// Nibbles of group g: 32 bytes hold two groups, low nibbles first. Repacked as columns i, i + 16.
void read_q4_k(const std::byte* in, int g, RowBlock& out) {
  read_group_scale(in, g, out);
  const std::byte* bytes = in + 16 + g / 2 * 32;
  for (int i = 0; i < 16; i++) {
    const int low = int(bytes[i]) >> g % 2 * 4 & 15, high = int(bytes[i + 16]) >> g % 2 * 4 & 15;
    out.quants[i] = uint8_t(low | high << 4);
  }
}

void read_q5_k(const std::byte* in, int g, RowBlock& out) {
  read_group_scale(in, g, out);
  const std::byte* bytes = in + 48 + g / 2 * 32;
  for (int i = 0; i < 32; i++) {
    const int low = int(bytes[i]) >> g % 2 * 4 & 15, high = int(in[16 + i]) >> g & 1;
    out.quants[i] = uint8_t(low | high << 4);
  }
}

void read_q6_k(const std::byte* in, int g, RowBlock& out) {
  const float scale = half_to_float(load<uint16_t>(in + 208));
  const int half = g / 4, r = g % 4;
  const std::byte* low = in + half * 64 + r % 2 * 32;
  const std::byte* high = in + 128 + half * 32;
  for (int i = 0; i < 32; i++)
    out.quants[i] =
        uint8_t(((int(low[i]) >> r / 2 * 4 & 15) | (int(high[i]) >> 2 * r & 3) << 4) - 32);
  for (int i = 0; i < 2; i++) {
    const float step = scale * float(load<int8_t>(in + 192 + g * 2 + i));
    std::memcpy(out.scales + 4 * i, &step, 4);
  }
}

// Columns 32 b .. of a stored row.
void read_block(DType type, const std::byte* row, int64_t b, RowBlock& out) {
  const DTypeInfo& about = info(type);
  const int per_block = about.block_elements / kQuantBlock, g = int(b % per_block);
  const std::byte* in = row + b / per_block * about.block_bytes;
  if (type == DType::q4_k) return read_q4_k(in, g, out);
  if (type == DType::q5_k) return read_q5_k(in, g, out);
  if (type == DType::q6_k) return read_q6_k(in, g, out);
  std::memcpy(out.scales, in, 2);
  if (type == DType::q8_0) std::memcpy(out.quants, in + 2, 32);
  if (type == DType::q4_0) std::memcpy(out.quants, in + 2, 16);
  if (type == DType::q5_0) read_5bit(in + 6, load<uint32_t>(in + 2), 16, out);
  if (type == DType::q4_1 || type == DType::q5_1) std::memcpy(out.minimum, in + 2, 2);
  if (type == DType::q4_1) std::memcpy(out.quants, in + 4, 16);
  if (type == DType::q5_1) read_5bit(in + 8, load<uint32_t>(in + 4), 0, out);
}

void pack_quants(DType type, int64_t columns, int rows, const std::byte* stored, std::byte* panel) {
  const QuantForm form = quant_form(type);
  const PanelShape shape = panel_shape(form, columns);
  const size_t element = form.wide ? 4 : 2, scales = form.halves ? 2 : 1;
  for (int r = 0; r < rows; r++, stored += bytes_of(type, columns))
    for (int64_t b = 0; b < shape.blocks; b++) {
      RowBlock block;
      read_block(type, stored, b, block);
      for (size_t i = 0; i < scales; i++)
        std::memcpy(panel + b * shape.scale_bytes + (i * kPanelRows + size_t(r)) * element,
                    block.scales + i * element, element);
      if (form.minimum)
        std::memcpy(panel + shape.minima_at + (size_t(b) * kPanelRows + size_t(r)) * element,
                    block.minimum, element);
      std::byte* to = panel + shape.quants_at + b * shape.quant_bytes + r * 4;
      for (int g = 0; g < shape.quant_bytes / 64; g++)
        std::memcpy(to + g * 64, block.quants + g * 4, 4);
    }
}

void pack_plain(size_t element, int64_t columns, int rows, const std::byte* stored,
                std::byte* panel) {
  for (int r = 0; r < rows; r++)
    for (int64_t k = 0; k < columns; k++, stored += element)
      std::memcpy(panel + (size_t(k) * kPanelRows + size_t(r)) * element, stored, element);
}

float narrow_or_wide(bool wide, const std::byte* in) {
  return wide ? load<float>(in) : half_to_float(load<uint16_t>(in));
}

void unpack_quants(DType type, int64_t columns, const std::byte* panel, int lane, float* out) {
  const QuantForm form = quant_form(type);
  const PanelShape shape = panel_shape(form, columns);
  const int element = form.wide ? 4 : 2;
  for (int64_t k = 0; k < columns; k++) {
    const int64_t b = k / kQuantBlock;
    const int c = int(k % kQuantBlock), at = form.nibbles ? c % 16 : c;
    const int scale_index = (form.halves ? c / 16 : 0) * kPanelRows + lane;
    const std::byte byte =
        panel[shape.quants_at + b * shape.quant_bytes + at / 4 * 64 + lane * 4 + at % 4];
    const int q = form.nibbles ? (int(byte) >> c / 16 * 4 & 15) - form.offset : int(int8_t(byte));
    const float scale =
        narrow_or_wide(form.wide, panel + b * shape.scale_bytes + scale_index * element);
    const float minimum =
        form.minimum
            ? narrow_or_wide(form.wide, panel + shape.minima_at + (b * kPanelRows + lane) * element)
            : 0;
    // The product is exact, so this rounds once at most, as separate operations would.
    out[k] = form.minimum ? scale * float(q) + minimum : scale * float(q);
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
  std::memset(panel, 0, size_t(panel_bytes(type, columns)));
  if (is_quantized(type)) return pack_quants(type, columns, rows, stored, panel);
  pack_plain(size_t(info(type).block_bytes), columns, rows, stored, panel);
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
