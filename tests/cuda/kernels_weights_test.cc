// SPDX-License-Identifier: Apache-2.0
// Weights on their way to a GPU: what is held, what becomes one part, and what a checkpoint's
// errors leave behind.
#include "kernels/cuda/weights.h"

#include <limits>

#include "kernels/cuda/product.h"
#include "tests/cuda/products.h"
#include "tests/kernels/streams.h"

namespace cohort {
namespace {

using reference::Weights;

class WeightsTest : public test::ProductTest {
 protected:
  // What the GPU holds of a part, as floats [rows][columns].
  std::vector<float> read(const Matrix& matrix, size_t part, DType type) const {
    const MatrixPart& p = matrix.parts().at(part);
    const auto count = size_t(p.rows * matrix.columns());
    if (!is_quantized(p.dtype)) return down(p.packed, p.dtype, count);
    const Buffer out = up(std::vector<float>(count + 32, -7.0f), type);
    cuda_check(cuda::dequantize(cuda::quant_view(p.dtype, matrix.columns(), p.packed.data()), type,
                                p.rows, out.data(), gpu_->compute()),
               "dequantize");
    std::vector<float> values = down(out, type, count + 32);
    for (size_t i = count; i < values.size(); i++) EXPECT_EQ(values[i], -7.0f);
    values.resize(count);
    return values;
  }
};

TEST_F(WeightsTest, HoldWhatTheCheckpointSays) {
  std::mt19937 random(21);
  for (DType type : reference::weight_types())
    for (DType activations : {DType::f16, DType::bf16}) {
      const auto s = stream(activations);
      const Weights w = reference::random_weights(type, 77, 512, random);
      const Matrix matrix = reference::pack(*s, 0, {&w});
      ASSERT_EQ(matrix.parts().size(), 1u);
      EXPECT_EQ(matrix.parts()[0].dtype, is_quantized(type) ? type : activations);
      EXPECT_EQ(int64_t(matrix.parts()[0].packed.size()),
                cuda::part_bytes(matrix.parts()[0].dtype, 77, 512));
      EXPECT_TRUE(same_bits(read(matrix, 0, activations), test::rounded(w.values, activations)))
          << name(type);
    }
}

TEST_F(WeightsTest, PlainPartsBecomeOne) {
  std::mt19937 random(22);
  const auto s = stream(DType::bf16);
  const Weights q = reference::random_weights(DType::f32, 5, 96, random);
  const Weights k = reference::random_weights(DType::f16, 3, 96, random);
  const Weights v = reference::random_weights(DType::bf16, 7, 96, random);
  const Matrix matrix = reference::pack(*s, 0, {&q, &k, &v});
  ASSERT_EQ(matrix.parts().size(), 1u);
  EXPECT_EQ(matrix.rows(), 15);
  std::vector<float> values = q.values;
  for (const Weights* w : {&k, &v}) values.insert(values.end(), w->values.begin(), w->values.end());
  EXPECT_TRUE(same_bits(read(matrix, 0, DType::bf16), test::rounded(values, DType::bf16)));
}

TEST_F(WeightsTest, QuantisedPartsBecomeOneWhereAPanelIsWhole) {
  std::mt19937 random(23);
  const auto s = stream(DType::f16);
  const Weights whole = reference::random_weights(DType::q4_0, 64, 96, random);
  const Weights broken = reference::random_weights(DType::q4_0, 33, 96, random);
  const Weights other = reference::random_weights(DType::q8_0, 32, 96, random);
  const Matrix matrix = reference::pack(*s, 0, {&whole, &whole, &broken, &broken, &other});
  ASSERT_EQ(matrix.parts().size(), 3u);
  EXPECT_EQ(matrix.parts()[0].rows, 64 + 64 + 33);
  EXPECT_EQ(matrix.parts()[1].rows, 33);
  EXPECT_EQ(matrix.parts()[2].rows, 32);
  std::vector<float> values = whole.values;
  for (const Weights* w : {&whole, &broken})
    values.insert(values.end(), w->values.begin(), w->values.end());
  EXPECT_TRUE(same_bits(read(matrix, 0, DType::f16), test::rounded(values, DType::f16)));
}

TEST_F(WeightsTest, F16KeepsInfinityAndSaturatesWhatIsFinite) {
  const auto s = stream(DType::f16);
  const float infinity = std::numeric_limits<float>::infinity();
  Weights w{DType::f32, 1, 4, {}, {1e6f, -1e6f, infinity, 65503.9f}};
  w.stored.resize(16);
  std::memcpy(w.stored.data(), w.values.data(), 16);
  EXPECT_EQ(read(reference::pack(*s, 0, {&w}), 0, DType::f16),
            (std::vector<float>{65504, -65504, infinity, 65504}));
}

// A large part is read in order, a few megabytes at a time, each row once.
TEST_F(WeightsTest, AreReadAFewMegabytesAtATime) {
  const auto s = stream(DType::f16);
  const int64_t columns = 32768, rows = 75;
  int64_t next = 0, most = 0;
  Matrix matrix(columns, 0);
  const Status status =
      matrix.add_part(*s, DType::f32, rows, [&](int64_t begin, int64_t end, std::byte* out) {
        EXPECT_EQ(begin, next);
        next = end;
        most = std::max(most, end - begin);
        const std::vector<float> row(static_cast<size_t>(columns), float(begin));
        for (int64_t r = begin; r < end; r++)
          std::memcpy(out + (r - begin) * columns * 4, row.data(), row.size() * 4);
        return Status();
      });
  ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_EQ(next, rows);
  EXPECT_LE(most * columns * 4, int64_t(8) << 20);
  const auto held = read(matrix, 0, DType::f16);
  for (int64_t r = 0; r < rows; r++)
    EXPECT_EQ(held[size_t(r * columns + 5)], float(r / most * most)) << r;
}

TEST_F(WeightsTest, AReadErrorIsPassedOnAndLeavesNoHalfPart) {
  std::mt19937 random(24);
  const auto s = stream(DType::f16);
  const Weights w = reference::random_weights(DType::f16, 4, 64, random);
  Matrix matrix = reference::pack(*s, 0, {&w});
  const Status status = matrix.add_part(*s, DType::f16, 9, [](int64_t, int64_t, std::byte*) {
    return data_loss("the file ends early");
  });
  EXPECT_EQ(status.message(), "the file ends early");
  ASSERT_EQ(matrix.parts().size(), 1u);
  EXPECT_EQ(matrix.rows(), 4);
  EXPECT_TRUE(same_bits(read(matrix, 0, DType::f16), w.values));
}

}  // namespace
}  // namespace cohort
