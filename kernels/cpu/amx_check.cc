// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/amx_check.h"

#include <algorithm>
#include <bit>
#include <random>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "base/half.h"
#include "kernels/packed.h"

namespace cohort {
namespace {

// Values of one kind: random sign and fraction, an exponent of 2 in [lowest, highest]; one in
// `special_in`, if not 0, is a denormal instead, or infinity or NaN.
struct Kind {
  int lowest, highest;
  int special_in;
  bool denormal;
};

constexpr Kind kKinds[] = {
    {-6, 3, 0, false},     // ordinary
    {-40, 40, 0, false},   // bits get lost, sums cancel
    {-6, 3, 2, true},      // denormal weights
    {-66, -60, 0, false},  // sums about the smallest normal number
    {-78, -58, 0, false},  // products below it beside sums above it
    {-126, 0, 3, true},    // both
    {56, 65, 0, false},    // sums overflow on the way
    {-6, 3, 512, false},   // infinities and NaN
};

uint16_t random_bf16(const Kind& kind, std::mt19937& random) {
  const uint32_t bits = random(), sign = bits & 0x8000u, fraction = bits & 0x7fu;
  if (kind.special_in != 0 && random() % uint32_t(kind.special_in) == 0) {
    if (kind.denormal) return uint16_t(sign | fraction);
    return uint16_t(sign | 0x7f80u | (fraction < 96 ? 0 : fraction));
  }
  const uint32_t exponents = uint32_t(kind.highest - kind.lowest + 1);
  return uint16_t(sign | uint32_t(127 + kind.lowest + int(random() % exponents)) << 7 | fraction);
}

// Rows and weights for two row tiles and two panels; sums of two blocks of columns.
class Trial {
 public:
  static constexpr int64_t kRows = 2 * kRowTile, kColumns = 64, kOutputs = 2 * kPanelRows;

  void fill(const Kind& kind, std::mt19937& random) {
    for (uint16_t& w : weights_) w = random_bf16(kind, random);
    for (size_t i = 0; i < narrow_.size(); i++) {
      const uint16_t x = random_bf16(kind, random);
      narrow_[i] = (x & 0x7f80u) == 0 ? x & 0x8000u : x;  // as rounding leaves it
      wide_[i] = bf16_to_float(narrow_[i]);
    }
  }

  // Sums of 2^-126 - 2^-150, half way from the greatest denormal to the smallest normal number:
  // tiny all the same (docs/arithmetic.md section 9). Random values hardly ever meet that.
  void fill_tiny() {
    std::ranges::fill(weights_, uint16_t{0});
    std::ranges::fill(narrow_, uint16_t{0});
    std::ranges::fill(wide_, 0.0f);
    for (int64_t output = 0; output < kOutputs; output++) {
      uint16_t* panel = weights_.data() + output / kPanelRows * kPanelRows * kColumns;
      panel[output % kPanelRows] = float_to_bf16(0x1p-63f);
      panel[2 * kPanelRows + output % kPanelRows] = float_to_bf16(-0x1p-63f);
    }
    for (int64_t row = 0; row < kRows; row++)
      for (const auto& [column, x] : {std::pair{0, 0x1p-63f}, {2, 0x1p-87f}}) {
        wide_[size_t(row * kStride + column)] = x;
        narrow_[size_t(row * kStride + column)] = float_to_bf16(x);
      }
  }

  std::vector<float> run(MatmulPanels* kernel) {
    std::vector<float> y(kRows * kOutputs);
    MatmulJob job{};
    job.type = DType::bf16;
    job.packed = reinterpret_cast<const std::byte*>(weights_.data());
    job.panel_bytes = plain_panel_bytes(2, kColumns);
    job.n = job.stride = kOutputs;
    job.columns = job.unit_columns = job.end = kColumns;
    job.rows = kRows;
    job.y = y.data();
    job.scratch = scratch_.as<float>();
    job.bf16 = {wide_.data(), narrow_.data(), kStride};
    job.bf16_tiles = true;
    kernel(job, 0, kOutputs / kPanelRows);
    return y;
  }

 private:
  static constexpr int64_t kStride = kColumns + 32;

  std::vector<uint16_t> weights_ = std::vector<uint16_t>(kOutputs * kColumns);
  std::vector<float> wide_ = std::vector<float>(kRows * kStride);
  std::vector<uint16_t> narrow_ = std::vector<uint16_t>(kRows * kStride);
  Buffer scratch_{size_t(kTileScratchBytes)};
};

bool same(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) || (a != a && b != b);
}

}  // namespace

bool sums_as_specified(MatmulPanels* matmul_bf16) {
  constexpr int kTrials = 6;  // of each kind: 6 * 1024 sums of 64 products
  std::mt19937 random(1);
  Trial trial;
  const auto agrees = [&] {
    return std::ranges::equal(trial.run(matmul_bf16), trial.run(matmul_bf16_portable), same);
  };
  for (const Kind& kind : kKinds)
    for (int i = 0; i < kTrials; i++) {
      trial.fill(kind, random);
      if (!agrees()) return false;
    }
  trial.fill_tiny();
  return agrees();
}

bool tiles_as_specified() { return sums_as_specified(matmul_bf16_amx); }

}  // namespace cohort
