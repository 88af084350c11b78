// SPDX-License-Identifier: Apache-2.0
// Layers of models in whose shapes kernels are measured.
#pragma once
#include <cstdint>

namespace cohort::bench {

struct LayerShape {
  const char* name;
  int64_t hidden, heads, kv_heads, dim, ffn, vocab;
};
// SmolLM2-135M and Llama-3.2-1B.
inline constexpr LayerShape kLayerShapes[] = {{"135M", 576, 9, 3, 64, 1536, 49152},
                                              {"1B", 2048, 32, 8, 64, 8192, 128256}};

}  // namespace cohort::bench
