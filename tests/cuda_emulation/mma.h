// SPDX-License-Identifier: Apache-2.0
// Matrix instructions of a warp, with the fragments of PTX ISA, "Warp-level Matrix Load
// Instruction: ldmatrix" and "Matrix Fragments for mma.m16n8k16" and "... m16n8k32". Sums are
// plain float chains over k: a GPU adds in an order of its own.
#pragma once
#include <cstdint>

#include "tests/cuda_emulation/warp.h"

namespace gpu {
void ldmatrix_x4(std::uint32_t (&r)[4], const void* row, EMU_SITE);
void ldmatrix_x4_trans(std::uint32_t (&r)[4], const void* row, EMU_SITE);
void ldmatrix_x2(std::uint32_t (&r)[2], const void* row, EMU_SITE);
void ldmatrix_x2_trans(std::uint32_t (&r)[2], const void* row, EMU_SITE);

void mma_m16n8k16_bf16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                       EMU_SITE);
void mma_m16n8k16_f16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                      EMU_SITE);
void mma_m16n8k32_s8(std::int32_t (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                     EMU_SITE);
}  // namespace gpu
