// SPDX-License-Identifier: Apache-2.0
// The tokens of all running sequences in device memory: what the host sent and what was sampled
// since. A sampled token becomes the next step's input without passing the host, and penalties
// count from here.
#pragma once
#include <cstdint>

#include "base/buffer.h"
#include "base/stream.h"
#include "base/tensor.h"

namespace cohort::cuda {

// i32 [slots][positions].
class TokenTable {
 public:
  TokenTable(Stream& stream, int32_t slots, int32_t positions);
  int32_t* data() const { return memory_.as<int32_t>(); }
  int32_t slots() const { return slots_; }
  int32_t positions() const { return positions_; }

 private:
  int32_t slots_, positions_;
  Buffer memory_;
};

// All of them enqueue on the compute stream and take device memory.

// ids[r] = the token of slots[r] at positions[r]; 0 where a position is -1. All i32 [rows].
void look_up_tokens(Stream& stream, const TokenTable& table, Tensor ids, Tensor slots,
                    Tensor positions);
// Writes tokens[i] to slots[i] at positions[i]; slot -1: nothing. All i32 [n].
void store_tokens(Stream& stream, const TokenTable& table, Tensor tokens, Tensor slots,
                  Tensor positions);

}  // namespace cohort::cuda
