// SPDX-License-Identifier: Apache-2.0
// Single instructions on known inputs: what a GPU makes of them is compared with what the emulation
// makes of them (part_emulation.cc).
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

namespace cohort::gpu_check {

// What the input words of a probe are.
enum class Input { bf16_pairs, f16_pairs, bits, floats };

struct Probe {
  const char* name;
  // Of the results, as f32, in units in the last place of the larger of the result and `scale`; -1:
  // they are equal to the bit (any NaN being any other, where `of_floats`).
  int allowed_ulp;
  float scale;
  bool of_floats;
  Input input;
  int warps;      // of one block each
  int words_in;   // per lane
  int words_out;  // per lane
  // in and out: [warps][32][words].
  void (*run)(cudaStream_t stream, int warps, const uint32_t* in, uint32_t* out);
};

std::vector<Probe> probes();

}  // namespace cohort::gpu_check
