// SPDX-License-Identifier: Apache-2.0
// The packed form of weights (docs/arithmetic.md section 2). Included by units of every instruction
// set: plain structs and static functions only.
#pragma once
#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace cohort {

constexpr int kPanelRows = 16;   // output rows packed side by side: one 32-bit lane each
constexpr int kMaxUnits = 2047;  // of a matrix: kernels hold one sum per level of the tree
constexpr int kQuantBlock = 32;  // columns that share one scale of the activations
constexpr int kSuperBlocks = 8;  // blocks of a super-block

// What the blocks of a quantised type have in common. All have 32 columns here. Scales and minima
// are f16, or, of types with super-blocks, an f16 of the super-block times an integer of the block,
// a product (of 11 by 8 bits at most) that f32 holds exactly.
struct QuantForm {
  bool nibbles = false;  // two unsigned values a byte; else int8
  bool halves = false;   // one scale per 16 columns; only with super-blocks
  bool super = false;    // has super-blocks
  bool minimum = false;  // value = scale * q + minimum; else scale * q
  bool small = false;    // int8 of magnitude 32 at most: products of eight columns fit 16 bits
  int offset = 0;        // subtracted from quants, which are unsigned if there is one
};

// Only for quantised types.
[[maybe_unused]] static constexpr QuantForm quant_form(DType type) {
  switch (type) {
    case DType::q4_0:
      return {.nibbles = true, .offset = 8};
    case DType::q4_1:
      return {.nibbles = true, .minimum = true};
    case DType::q5_0:
      return {.small = true, .offset = 16};
    case DType::q5_1:
      return {.minimum = true, .small = true};
    case DType::q4_k:
      return {.nibbles = true, .super = true, .minimum = true};
    case DType::q5_k:
      return {.super = true, .minimum = true, .small = true};
    case DType::q6_k:
      return {.halves = true, .super = true, .small = true};
    default:
      return {};  // q8_0
  }
}

// A quantised type as a constant of the compiler.
template <DType kType>
struct FormOf {
  static constexpr DType type = kType;
  static constexpr QuantForm form = quant_form(kType);
};

// run(FormOf<type>()): how code that is compiled for a form finds the one of a quantised type.
template <class Run>
static void for_form(DType type, const Run& run) {
  switch (type) {
    case DType::q4_0:
      return run(FormOf<DType::q4_0>());
    case DType::q4_1:
      return run(FormOf<DType::q4_1>());
    case DType::q5_0:
      return run(FormOf<DType::q5_0>());
    case DType::q5_1:
      return run(FormOf<DType::q5_1>());
    case DType::q4_k:
      return run(FormOf<DType::q4_k>());
    case DType::q5_k:
      return run(FormOf<DType::q5_k>());
    case DType::q6_k:
      return run(FormOf<DType::q6_k>());
    default:
      return run(FormOf<DType::q8_0>());
  }
}

// A panel of 16 rows: records of scales | padding to 64 bytes | quants [block]. A record is of a
// block or, where there are such, a super-block:
//   scale f16 [16] | minimum f16 [16], if the form has minima
//   super-blocks: | [block][2][16] int8, factors of scale and minimum, or of the halves' scales
// Quants: vector g of 64 bytes holds four bytes of each row:
//   int8:    8 vectors, columns 4g .. 4g+3
//   nibbles: 4 vectors, low nibbles columns 4g .. 4g+3, high nibbles columns 16 + 4g ..
struct PanelShape {
  int64_t blocks, quants_at, bytes;  // the last two in bytes
  int quant_bytes;                   // of one block
  int record_bytes;
};

[[maybe_unused]] static constexpr int record_blocks(QuantForm f) {
  return f.super ? kSuperBlocks : 1;
}

// Where the factors of the first block are in a record, and those of block b.
[[maybe_unused]] static constexpr int factors_at(QuantForm f, int b = 0) {
  return (f.minimum ? 4 : 2) * kPanelRows + b * 2 * kPanelRows;
}

[[maybe_unused]] static constexpr PanelShape panel_shape(QuantForm f, int64_t columns) {
  const int record = factors_at(f, f.super ? kSuperBlocks : 0), quants = f.nibbles ? 256 : 512;
  const int64_t blocks = columns / kQuantBlock;
  const int64_t at = (blocks / record_blocks(f) * record + 63) / 64 * 64;
  return {blocks, at, at + blocks * quants, quants, record};
}

// The record of block b.
[[maybe_unused]] static constexpr int64_t record_at(QuantForm f, const PanelShape& shape,
                                                    int64_t b) {
  return b / record_blocks(f) * shape.record_bytes;
}

// Panels of plain types are [column][16 rows].
[[maybe_unused]] static constexpr int64_t plain_panel_bytes(int element_bytes, int64_t columns) {
  return columns * kPanelRows * element_bytes;
}

int64_t panel_bytes(DType type, int64_t columns);

// Packs `rows` (at most 16) rows, stored one after another in their checkpoint's form. Missing rows
// become zeros.
void pack_panel(DType type, int64_t columns, int rows, const std::byte* stored, std::byte* panel);

// Row `lane` of a panel as f32: what embedding looks up (docs/arithmetic.md section 1).
void unpack_row(DType type, int64_t columns, const std::byte* panel, int lane, float* out);

}  // namespace cohort
