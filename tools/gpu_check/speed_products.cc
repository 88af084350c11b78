// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <thread>

#include "base/failure.h"
#include "kernels/ops.h"
#include "tools/gpu_check/arrays.h"
#include "tools/gpu_check/random_checkpoint.h"
#include "tools/gpu_check/speed.h"

namespace cohort::gpu_check {
namespace {

constexpr DType kType = DType::bf16;
constexpr int64_t kDistinct = 61;  // rows that a matrix is made of

class ProductSpeed {
 public:
  ProductSpeed(const SpeedBench& bench, const std::string& what, DType type, int64_t n,
               int64_t columns)
      : bench_(bench),
        what_(what),
        type_(type),
        n_(n),
        columns_(columns),
        stream_(bench.device, kType, int(std::clamp(std::thread::hardware_concurrency(), 1u, 16u)),
                false) {
    std::mt19937 random(1);
    const reference::Weights some = reference::random_weights(type, kDistinct, columns, random);
    const int64_t row = bytes_of(type, columns);
    for (int c = bench.copies(double(bytes_of(type, n * columns))); c > 0; c--) {
      Matrix& matrix = copies_.emplace_back(columns, 0);
      const Status status =
          matrix.add_part(stream_, type, n, [&](int64_t begin, int64_t end, std::byte* out) {
            for (int64_t r = begin; r < end; r++, out += row)
              std::memcpy(out, some.stored.data() + r % kDistinct * row, size_t(row));
            return Status();
          });
      if (!status.ok()) throw Failure(status);
    }
  }

  void measure(int64_t rows, ActivationMode mode) {
    const bool int8 = mode == ActivationMode::int8;
    const std::string shape = concat(what_, ", ", rows, " x ", columns_, " x ", n_),
                      title = concat("matmul, ", name(type_), int8 ? ", int8" : "");
    bench_.report.guarded(title, shape, [&] {
      const Buffer x = random_array(*bench_.device, kType, rows * columns_, 7),
                   y = bench_.device->allocate(size_t(2 * rows * n_));
      Activations prepared(stream_, rows, columns_, mode);
      const Tensor in(x.data(), kType, {rows, columns_}), out(y.data(), kType, {1, rows, n_});
      ops::cuda::prepare(stream_, prepared, in);
      const double seconds = bench_.seconds([&](int i) {
        const Matrix& matrix = copies_[size_t(i) % copies_.size()];
        const std::vector<UnitRange> pieces = {{0, matrix.units()}};
        ops::cuda::matmul(stream_, out, prepared, matrix, pieces);
      });
      const double bytes = double(copies_[0].packed_bytes() + 2 * rows * (columns_ + n_));
      bench_.add(title, shape, seconds, bytes, 2.0 * double(rows) * double(n_) * double(columns_));
      if (int8 && rows >= 64)
        bench_.add("prepare, int8", concat(rows, " x ", columns_),
                   bench_.seconds([&](int) { ops::cuda::prepare(stream_, prepared, in); }),
                   3.125 * double(rows * columns_), 0, kCopy);
    });
  }

 private:
  const SpeedBench& bench_;
  const std::string what_;
  const DType type_;
  const int64_t n_, columns_;
  Stream stream_;
  std::vector<Matrix> copies_;
};

void measure_type(const SpeedBench& bench, DType type) {
  const bool tiny = bench.report.tiny();
  const ModelConfig c = tiny ? small_llama() : llama_8b();
  struct Shape {
    const char* what;
    int64_t n, columns;
  };
  const Shape shapes[] = {{"gate and up", 2 * c.ffn, c.hidden},
                          {"down", c.hidden, c.ffn},
                          {"qkv", (c.heads + 2 * c.kv_heads) * c.head_dim, c.hidden}};
  const std::vector<int64_t> rows =
      tiny ? std::vector<int64_t>{2} : std::vector<int64_t>{1, 8, 16, 64, 512};
  for (const Shape& s : shapes)
    bench.report.guarded("matmul", concat(name(type), ", ", s.what), [&] {
      ProductSpeed speed(bench, s.what, type, s.n, s.columns);
      for (const int64_t r : rows) {
        speed.measure(r, ActivationMode::native);
        if (type == DType::q8_0 || type == DType::q4_0) speed.measure(r, ActivationMode::int8);
      }
    });
}

}  // namespace

void measure_products(const SpeedBench& bench) {
  for (const DType type : {DType::bf16, DType::q4_0, DType::q8_0, DType::q4_k})
    measure_type(bench, type);
}

}  // namespace cohort::gpu_check
