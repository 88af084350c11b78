// SPDX-License-Identifier: Apache-2.0
#include "base/dtype.h"

#include <array>

#include "base/check.h"

namespace cohort {
namespace {

constexpr std::array<DTypeInfo, 14> kInfo = {{
    {"f32", 1, 4},
    {"f16", 1, 2},
    {"bf16", 1, 2},
    {"i32", 1, 4},
    {"i8", 1, 1},
    {"f8_e4m3", 1, 1},
    {"q8_0", 32, 34},
    {"q4_0", 32, 18},
    {"q4_1", 32, 20},
    {"q5_0", 32, 22},
    {"q5_1", 32, 24},
    {"q4_k", 256, 144},
    {"q5_k", 256, 176},
    {"q6_k", 256, 210},
}};

}  // namespace

const DTypeInfo& info(DType type) { return kInfo[static_cast<size_t>(type)]; }

std::optional<DType> parse_dtype(std::string_view name) {
  for (size_t i = 0; i < kInfo.size(); i++)
    if (kInfo[i].name == name) return static_cast<DType>(i);
  return std::nullopt;
}

int64_t bytes_of(DType type, int64_t elements) {
  const DTypeInfo& i = info(type);
  COHORT_CHECK_EQ(elements % i.block_elements, 0);
  return elements / i.block_elements * i.block_bytes;
}

}  // namespace cohort
