// SPDX-License-Identifier: Apache-2.0
// The arithmetic of the emulated cuBLASLt. Built with -O3 (CMakeLists.txt): a step of a test model
// spends most of its time here.
#include <cblas.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <algorithm>
#include <array>
#include <vector>

#include "tests/cuda_emulation/cublaslt_problem.h"
#include "tests/cuda_emulation/runtime.h"

namespace emu::blas {
namespace {
constexpr std::size_t kRows = 16;      // of the first operand that are summed side by side
constexpr std::size_t kDepth = 256;    // elements of k that are widened at once
constexpr std::size_t kTileRows = 64;  // of kTiles: never another shape, whatever the product
constexpr std::size_t kTileColumns = 16;

using Vector = float __attribute__((vector_size(16), aligned(4)));

// Value of each f16 and e4m3 bit pattern.
template <class T, std::size_t N>
const std::array<float, N>& table() {
  static const std::array<float, N> values = [] {
    std::array<float, N> v;
    for (std::size_t i = 0; i < N; ++i) {
      T x;
      std::memcpy(static_cast<void*>(&x), &i, sizeof x);
      v[i] = float(x);
    }
    return v;
  }();
  return values;
}

template <class T, class F>
void each(const char* base, std::size_t n, std::ptrdiff_t stride, float* out, F value) {
  const T* p = reinterpret_cast<const T*>(base);
  if (stride == 1)
    for (std::size_t i = 0; i < n; ++i) out[i] = value(p[i]);
  else
    for (std::size_t i = 0; i < n; ++i) out[i] = value(p[std::ptrdiff_t(i) * stride]);
}

float bf16_value(std::uint16_t bits) {
  const std::uint32_t wide = std::uint32_t(bits) << 16;
  float f;
  std::memcpy(&f, &wide, 4);
  return f;
}

const char* at(const View& v, std::size_t r, std::size_t c) {
  return v.base +
         (std::ptrdiff_t(r) * v.rs + std::ptrdiff_t(c) * v.cs) * std::ptrdiff_t(width(v.type));
}

// 4 rows of 4 elements each, `from` floats apart, to 4 columns `to` floats apart.
void transpose4(const float* in, std::size_t from, float* out, std::size_t to) {
  Vector r[4];
  for (int i = 0; i < 4; ++i) std::memcpy(&r[i], in + i * from, 16);
  const Vector a = __builtin_shufflevector(r[0], r[1], 0, 4, 1, 5);
  const Vector b = __builtin_shufflevector(r[0], r[1], 2, 6, 3, 7);
  const Vector c = __builtin_shufflevector(r[2], r[3], 0, 4, 1, 5);
  const Vector d = __builtin_shufflevector(r[2], r[3], 2, 6, 3, 7);
  const Vector columns[4] = {
      __builtin_shufflevector(a, c, 0, 1, 4, 5), __builtin_shufflevector(a, c, 2, 3, 6, 7),
      __builtin_shufflevector(b, d, 0, 1, 4, 5), __builtin_shufflevector(b, d, 2, 3, 6, 7)};
  for (int i = 0; i < 4; ++i) std::memcpy(out + i * to, &columns[i], 16);
}

// Elements (i0 + i, k0 + k) of `a` into panel[k * kRows + i]; missing rows stay as they are.
void pack(const View& a, std::size_t i0, std::size_t rows, std::size_t k0, std::size_t depth,
          float* panel) {
  if (a.rs == 1) {
    for (std::size_t k = 0; k < depth; ++k)
      widen(at(a, i0, k0 + k), a.type, rows, 1, panel + k * kRows);
    return;
  }
  alignas(64) static thread_local float lines[kRows][kDepth];
  for (std::size_t i = 0; i < rows; ++i) widen(at(a, i0 + i, k0), a.type, depth, a.cs, lines[i]);
  for (std::size_t k = 0; k < (depth + 3) / 4 * 4; k += 4)
    for (std::size_t i = 0; i < kRows; i += 4)
      transpose4(&lines[i][k], kDepth, panel + k * kRows + i, kRows);
}

// acc[i] += panel[k][i] * b[k] for k upwards: one chain of additions for each i.
void chain(const float* panel, const float* b, std::size_t depth, float* acc) {
  Vector s[kRows / 4];
  std::memcpy(s, acc, sizeof s);
  for (std::size_t k = 0; k < depth; ++k) {
    const Vector f{b[k], b[k], b[k], b[k]};
    const float* p = panel + k * kRows;
    for (std::size_t q = 0; q < kRows / 4; ++q) {
      Vector x;
      std::memcpy(&x, p + 4 * q, 16);
      s[q] += x * f;
    }
  }
  std::memcpy(acc, s, sizeof s);
}

// Columns [k0, k1) of b, as f32: out[j * (k1 - k0) + k].
std::vector<float> widen_columns(const View& b, std::size_t k0, std::size_t k1,
                                 std::size_t columns) {
  std::vector<float> out(columns * (k1 - k0), 0.0f);
  for (std::size_t j = 0; j < b.cols; ++j)
    widen(at(b, k0, j), b.type, k1 - k0, b.rs, out.data() + j * (k1 - k0));
  return out;
}

void sum_chains(const View& a, const View& b, std::size_t k0, std::size_t k1, float* z,
                std::size_t zi, std::size_t zj) {
  const auto wide = widen_columns(b, k0, k1, b.cols);
  std::vector<float> acc(b.cols * kRows);
  std::vector<float> panel(kDepth * kRows);
  for (std::size_t i0 = 0; i0 < a.rows; i0 += kRows) {
    const std::size_t rows = std::min(kRows, a.rows - i0);
    std::fill(acc.begin(), acc.end(), 0.0f);
    for (std::size_t k = k0; k < k1; k += kDepth) {
      const std::size_t depth = std::min(kDepth, k1 - k);
      pack(a, i0, rows, k, depth, panel.data());
      for (std::size_t j = 0; j < b.cols; ++j)
        chain(panel.data(), wide.data() + j * (k1 - k0) + (k - k0), depth, acc.data() + j * kRows);
    }
    for (std::size_t j = 0; j < b.cols; ++j)
      for (std::size_t i = 0; i < rows; ++i) z[(i0 + i) * zi + j * zj] = acc[j * kRows + i];
  }
}

void sum_tiles(const View& a, const View& b, float* z, std::size_t zi, std::size_t zj) {
  const std::size_t k = a.cols;
  const std::size_t columns = (b.cols + kTileColumns - 1) / kTileColumns * kTileColumns;
  const auto wide = widen_columns(b, 0, k, columns);
  std::vector<float> rows(kTileRows * k, 0.0f);
  std::array<float, kTileRows * kTileColumns> tile{};
  for (std::size_t i0 = 0; i0 < a.rows; i0 += kTileRows) {
    const std::size_t m = std::min(kTileRows, a.rows - i0);
    for (std::size_t i = 0; i < m; ++i)
      widen(at(a, i0 + i, 0), a.type, k, a.cs, rows.data() + i * k);
    for (std::size_t j0 = 0; j0 < b.cols; j0 += kTileColumns) {
      cblas_sgemm(CblasColMajor, CblasTrans, CblasNoTrans, kTileRows, kTileColumns, int(k), 1,
                  rows.data(), int(k), wide.data() + j0 * k, int(k), 0, tile.data(), kTileRows);
      const std::size_t n = std::min(kTileColumns, b.cols - j0);
      for (std::size_t j = 0; j < n; ++j)
        for (std::size_t i = 0; i < m; ++i)
          z[(i0 + i) * zi + (j0 + j) * zj] = tile[j * kTileRows + i];
    }
  }
}

View transposed(const View& v) { return {v.base, v.type, v.cols, v.rows, v.cs, v.rs}; }

// Tells the race checker what is touched, whole contiguous runs at once.
template <class F>
void touch(const Layout& l, const void* base, F mark) {
  const auto inner = l.order == CUBLASLT_ORDER_COL ? l.rows : l.cols;
  const auto outer = l.order == CUBLASLT_ORDER_COL ? l.cols : l.rows;
  const std::size_t w = width(l.type);
  for (std::int32_t b = 0; b < l.batch; ++b) {
    const char* p = static_cast<const char*>(base) + b * l.batch_stride * std::int64_t(w);
    if (l.ld == std::int64_t(inner))
      mark(p, inner * outer * w);
    else
      for (std::uint64_t o = 0; o < outer; ++o) mark(p + o * l.ld * w, inner * w);
  }
}

void annotate(const Product& p, const Algorithm& algorithm, const Operands& x) {
  auto read = [](const char* at, std::size_t n) { emu::reads(at, n); };
  touch(p.a, x.a, read);
  touch(p.b, x.b, read);
  if (x.beta != 0 || x.ibeta != 0) touch(p.c, x.c, read);
  if (p.op.a_scale) emu::reads(p.op.a_scale, 4);
  if (p.op.b_scale) emu::reads(p.op.b_scale, 4);
  std::size_t workspace = 0;
  if (!check_algorithm(p, algorithm, &workspace) && workspace > 0)
    emu::writes(x.workspace, workspace);
  touch(p.d, x.d, [](const char* at, std::size_t n) { emu::writes(const_cast<char*>(at), n); });
}

void store(cudaDataType type, char* at, float v) {
  if (type == CUDA_R_32F) {
    std::memcpy(at, &v, 4);
  } else if (type == CUDA_R_16BF) {
    const auto x = __float2bfloat16_rn(v);
    std::memcpy(at, &x, 2);
  } else {
    const auto x = __float2half_rn(v);
    std::memcpy(at, &x, 2);
  }
}

void multiply_integers(const Product& p, const Operands& x, std::int32_t batch) {
  const View a = view(p.a, x.a, p.op.op_a, batch), b = view(p.b, x.b, p.op.op_b, batch);
  const View c = view(p.c, x.c, CUBLAS_OP_N, batch), d = view(p.d, x.d, CUBLAS_OP_N, batch);
  for (std::size_t j = 0; j < p.n; ++j)
    for (std::size_t i = 0; i < p.m; ++i) {
      const auto* u = reinterpret_cast<const std::int8_t*>(at(a, i, 0));
      const auto* v = reinterpret_cast<const std::int8_t*>(at(b, 0, j));
      std::int32_t s = 0;
      for (std::size_t k = 0; k < p.k; ++k) s += std::int32_t(u[k]) * v[k];
      std::uint32_t out = std::uint32_t(x.ialpha) * std::uint32_t(s);
      if (x.ibeta != 0)
        out += std::uint32_t(x.ibeta) * *reinterpret_cast<const std::uint32_t*>(at(c, i, j));
      std::memcpy(const_cast<char*>(at(d, i, j)), &out, 4);
    }
}

// alpha * scales * z + beta * C + bias, rounded once to the type of D.
void finish(const Product& p, const Operands& x, std::int32_t batch, const float* z) {
  const View c = view(p.c, x.c, CUBLAS_OP_N, batch), d = view(p.d, x.d, CUBLAS_OP_N, batch);
  const float alpha =
      x.alpha * (p.op.a_scale ? *p.op.a_scale : 1.0f) * (p.op.b_scale ? *p.op.b_scale : 1.0f);
  std::vector<float> bias, before(p.m);
  if (p.op.epilogue == CUBLASLT_EPILOGUE_BIAS) {
    const auto type = p.op.bias_type == -1 ? p.d.type : cudaDataType(p.op.bias_type);
    const auto* at = static_cast<const char*>(p.op.bias) +
                     batch * p.op.bias_batch_stride * std::int64_t(width(type));
    bias.resize(p.m);
    emu::reads(at, p.m * width(type));
    widen(at, type, p.m, 1, bias.data());
  }
  for (std::size_t j = 0; j < p.n; ++j) {
    if (x.beta != 0) widen(at(c, 0, j), c.type, p.m, c.rs, before.data());
    for (std::size_t i = 0; i < p.m; ++i) {
      float v = alpha * z[j * p.m + i];
      if (x.beta != 0) v += x.beta * before[i];
      if (!bias.empty()) v += bias[i];
      store(d.type, const_cast<char*>(at(d, i, j)), v);
    }
  }
}
}  // namespace

void widen(const char* base, cudaDataType type, std::size_t n, std::ptrdiff_t stride, float* out) {
  switch (type) {
    case CUDA_R_32F:
      return each<float>(base, n, stride, out, [](float v) { return v; });
    case CUDA_R_16BF:
      return each<std::uint16_t>(base, n, stride, out, bf16_value);
    case CUDA_R_16F: {
      const float* values = table<__half, 65536>().data();
      return each<std::uint16_t>(base, n, stride, out, [=](auto v) { return values[v]; });
    }
    case CUDA_R_8F_E4M3: {
      const float* values = table<__nv_fp8_e4m3, 256>().data();
      return each<std::uint8_t>(base, n, stride, out, [=](auto v) { return values[v]; });
    }
    default:
      emu::raise("this matrix type is not emulated");
  }
}

void sum_products(const Algorithm& algorithm, const View& a, const View& b, float* workspace,
                  float* z, std::size_t zi, std::size_t zj) {
  // Blocks of the first operand are widened once, the second operand at once: the smaller one.
  if (a.rows < b.cols)
    return sum_products(algorithm, transposed(b), transposed(a), workspace, z, zj, zi);
  if (algorithm.id == kTiles) return sum_tiles(a, b, z, zi, zj);
  if (algorithm.split_k <= 1) return sum_chains(a, b, 0, a.cols, z, zi, zj);
  const std::size_t parts = algorithm.split_k, size = a.rows * b.cols;
  for (std::size_t s = 0; s < parts; ++s)
    sum_chains(a, b, a.cols * s / parts, a.cols * (s + 1) / parts, workspace + s * size, zi, zj);
  std::copy(workspace, workspace + size, z);
  for (std::size_t s = 1; s < parts; ++s)
    for (std::size_t i = 0; i < size; ++i) z[i] += workspace[s * size + i];
}

void multiply(const Product& p, const Algorithm& algorithm, const Operands& x) {
  annotate(p, algorithm, x);
  std::vector<float> z;
  if (p.op.compute != CUBLAS_COMPUTE_32I) z.resize(p.m * p.n);
  for (std::int32_t batch = 0; batch < p.d.batch; ++batch) {
    if (p.op.compute == CUBLAS_COMPUTE_32I) {
      multiply_integers(p, x, batch);
      continue;
    }
    sum_products(algorithm, view(p.a, x.a, p.op.op_a, batch), view(p.b, x.b, p.op.op_b, batch),
                 static_cast<float*>(x.workspace), z.data(), 1, p.m);
    finish(p, x, batch, z.data());
  }
}

}  // namespace emu::blas
