// SPDX-License-Identifier: Apache-2.0
// Loops that do one thing only, as fast as an instruction set allows: what bounds a kernel. Plain
// declarations, because units of every instruction set include this.
#pragma once
#include <cstddef>
#include <cstdint>

namespace cohort {

// Computes in registers alone; returns the operations done, a multiply-add being two.
using ArithmeticLoop = double(int64_t rounds);
// Reads memory once, in order; bytes is a multiple of kReadStep. The result depends on all of it.
using ReadLoop = uint64_t(const std::byte* data, size_t bytes);
inline constexpr size_t kReadStep = 512;

// f32 multiply-adds. The baseline has no fused ones: a product and a sum.
ArithmeticLoop fma_portable, fma_avx2, fma_avx512;
// Products of 8-bit integers, added up: vpmaddubsw and a 16-bit sum (AVX2), vpdpbusd (AVX-512). The
// baseline multiplies 16-bit integers.
ArithmeticLoop int8_portable, int8_avx2, int8_avx512;
// Products of tiles of bf16. The processor must have them, and the process permission to use them.
ArithmeticLoop tiles_amx;

ReadLoop read_portable, read_avx2, read_avx512;

}  // namespace cohort
