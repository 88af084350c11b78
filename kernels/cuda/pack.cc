// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/pack.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/half.h"
#include "kernels/cuda/quant_view.h"
#include "kernels/packed.h"
#include "kernels/panel_scales.h"

namespace cohort::cuda {
namespace {

// Byte `column` of row `lane` of a block of the CPU's panel; both halves of it for nibbles.
std::byte cpu_quant(const std::byte* block, int lane, int column) {
  return block[column / 4 * 64 + lane * 4 + column % 4];
}

int cpu_nibble(const std::byte* block, int lane, int column) {
  return int(cpu_quant(block, lane, column % 16)) >> column / 16 * 4 & 15;
}

// Quants of 16 rows by 32 columns: 8 (nibbles) or 16 bytes for each lane of a warp, lane_bytes
// apart. Bytes are signed there.
void place_quants(QuantForm form, const std::byte* block, std::byte* out, int lane_bytes) {
  const auto signed_quant = [&](int row, int column) {
    return std::byte(int(cpu_quant(block, row, column)) - form.offset);
  };
  for (int lane = 0; lane < 32; lane++, out += lane_bytes)
    for (int step = 0; step < 2; step++)
      for (int byte = 0; byte < 4; byte++) {
        const int row = lane / 4, column = step * 16 + lane % 4 * 4 + byte;
        if (form.nibbles) {
          out[step * 4 + byte] =
              std::byte(cpu_nibble(block, row, column) | cpu_nibble(block, row + 8, column) << 4);
        } else {
          out[step * 8 + byte] = signed_quant(row, column);
          out[step * 8 + 4 + byte] = signed_quant(row + 8, column);
        }
      }
}

// Scale, and second scale or minimum, of a row of block b as they are in a record: f32 if they are
// products, else f16 as stored.
void place_values(QuantForm form, const PanelShape& shape, const std::byte* panel, int64_t b,
                  int row, int values, std::byte* to) {
  const PanelScales scales(form, shape, panel);
  for (int i = 0; i < values; i++) {
    if (form.super) {
      const bool minimum = i > 0 && form.minimum;
      const float value = minimum ? scales.minimum(b, row) : scales.scale(b, i, row);
      std::memcpy(to + i * 4, &value, 4);
    } else {
      std::memcpy(to + i * 2, panel + record_at(form, shape, b) + (i * kPanelRows + row) * 2, 2);
    }
  }
}

// Scales and minima of one tile's rows in block b: row g + 8 h to slot 4 g + 2 tile + h.
void place_scales(QuantForm form, const PanelShape& shape, const std::byte* panel, int64_t b,
                  int tile, std::byte* out) {
  const int values = 1 + (form.halves || form.minimum ? 1 : 0), bytes = form.super ? 4 : 2;
  for (int row = 0; row < kPanelRows; row++)
    place_values(form, shape, panel, b, row, values,
                 out + (row % 8 * 4 + tile * 2 + row / 8) * values * bytes);
}

float widened(DType type, const std::byte* in) {
  if (type == DType::f32) {
    float value;
    std::memcpy(&value, in, sizeof value);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, in, sizeof bits);
  return type == DType::f16 ? half_to_float(bits) : bf16_to_float(bits);
}

void store_narrowed(DType type, float value, std::byte* out) {
  if (type == DType::f32) {
    std::memcpy(out, &value, sizeof value);
    return;
  }
  if (type == DType::f16 && std::isfinite(value)) value = std::clamp(value, -65504.0f, 65504.0f);
  const uint16_t bits = type == DType::f16 ? float_to_half(value) : float_to_bf16(value);
  std::memcpy(out, &bits, sizeof bits);
}

}  // namespace

QuantView quant_view(DType type, int64_t columns, const void* data) {
  const QuantForm form = quant_form(type);
  QuantView view{};
  view.data = static_cast<const unsigned char*>(data);
  view.blocks = columns / kQuantBlock;
  view.values = 1 + (form.halves || form.minimum ? 1 : 0);
  view.quant_bytes = form.nibbles ? 512 : 1024;
  view.record_bytes = view.quant_bytes + kQuantPanel * view.values * (form.super ? 4 : 2);
  view.offset = form.nibbles ? form.offset : 0;
  view.nibbles = form.nibbles;
  view.halves = form.halves;
  view.wide = form.super;
  view.minimum = form.minimum;
  return view;
}

int64_t quant_bytes(DType type, int64_t rows, int64_t columns) {
  const QuantView view = quant_view(type, columns, nullptr);
  return (rows + kQuantPanel - 1) / kQuantPanel * view.blocks * view.record_bytes;
}

void pack_quant_panel(DType type, int64_t columns, int rows, const std::byte* stored,
                      std::byte* panel) {
  const QuantForm form = quant_form(type);
  const PanelShape shape = panel_shape(form, columns);
  const QuantView view = quant_view(type, columns, panel);
  std::vector<std::byte> half(static_cast<size_t>(shape.bytes));
  for (int tile = 0; tile < 2; tile++) {
    const int first = std::min(rows, tile * kPanelRows), count = std::min(rows - first, kPanelRows);
    // The CPU's panel of these rows is half way: one reading of the checkpoint's formats for both.
    pack_panel(type, columns, count, stored + bytes_of(type, first * columns), half.data());
    for (int64_t b = 0; b < view.blocks; b++) {
      std::byte* record = panel + b * view.record_bytes;
      const std::byte* block = half.data() + shape.quants_at + b * shape.quant_bytes;
      place_quants(form, block, record + tile * (form.nibbles ? 8 : 512), 16);
      place_scales(form, shape, half.data(), b, tile, record + view.quant_bytes);
    }
  }
}

void convert_plain(DType from, const std::byte* in, DType to, std::byte* out, int64_t count) {
  const int64_t from_bytes = info(from).block_bytes, to_bytes = info(to).block_bytes;
  if (from == to) {
    std::memcpy(out, in, size_t(count * to_bytes));
    return;
  }
  for (int64_t i = 0; i < count; i++)
    store_narrowed(to, widened(from, in + i * from_bytes), out + i * to_bytes);
}

}  // namespace cohort::cuda
