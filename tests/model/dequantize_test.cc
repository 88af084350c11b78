// SPDX-License-Identifier: Apache-2.0
// Against values that an independent implementation computed:
// tests/reference/make_quant_vectors.py.
#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <vector>

#include "base/mapped_file.h"
#include "model/checkpoint.h"

namespace cohort {
namespace {

struct Vector {
  DType type;
  std::span<const std::byte> blocks;
  std::vector<float> values;
};

class VectorFile {
 public:
  VectorFile() : file_(*MappedFile::open("tests/data/quant_vectors.bin")), rest_(file_->bytes()) {}

  std::vector<Vector> vectors() {
    std::vector<Vector> all;
    while (!rest_.empty()) {
      const auto name = take(number());
      const std::string text(reinterpret_cast<const char*>(name.data()), name.size());
      Vector v;
      v.type = *parse_dtype(text);
      v.values.resize(number());
      v.blocks = take(number());
      std::memcpy(v.values.data(), take(4 * v.values.size()).data(), 4 * v.values.size());
      all.push_back(std::move(v));
    }
    return all;
  }

 private:
  std::span<const std::byte> take(size_t n) {
    const auto taken = rest_.first(n);
    rest_ = rest_.subspan(n);
    return taken;
  }
  uint32_t number() {
    uint32_t value;
    std::memcpy(&value, take(4).data(), 4);
    return value;
  }

  std::unique_ptr<MappedFile> file_;
  std::span<const std::byte> rest_;
};

TEST(Dequantize, EqualsTheReferenceBitForBit) {
  std::set<DType> seen;
  VectorFile file;
  for (const Vector& vector : file.vectors()) {
    seen.insert(vector.type);
    std::vector<float> values(vector.values.size());
    dequantize(vector.type, vector.blocks.data(), int64_t(values.size()), values.data());
    for (size_t i = 0; i < values.size(); i++)
      ASSERT_EQ(values[i], vector.values[i]) << name(vector.type) << " element " << i;
  }
  EXPECT_EQ(seen.size(), 11u);
}

TEST(Dequantize, ReadsBlocksAtOddAddresses) {
  VectorFile file;
  for (const Vector& vector : file.vectors()) {
    std::vector<std::byte> shifted(vector.blocks.size() + 1);
    std::memcpy(shifted.data() + 1, vector.blocks.data(), vector.blocks.size());
    std::vector<float> values(vector.values.size());
    dequantize(vector.type, shifted.data() + 1, int64_t(values.size()), values.data());
    EXPECT_EQ(values, vector.values) << name(vector.type);
  }
}

TEST(Dequantize, TakesOneBlockOfMany) {
  VectorFile file;
  for (const Vector& vector : file.vectors()) {
    const DTypeInfo& about = info(vector.type);
    std::vector<float> values(size_t(about.block_elements));
    dequantize(vector.type, vector.blocks.data() + 3 * about.block_bytes, about.block_elements,
               values.data());
    for (size_t i = 0; i < values.size(); i++)
      ASSERT_EQ(values[i], vector.values[3 * values.size() + i]) << name(vector.type);
  }
}

TEST(DequantizeDeathTest, RefusesPartsOfBlocksAndIntegers) {
  std::byte bytes[64] = {};
  float out[64];
  EXPECT_DEATH(dequantize(DType::q8_0, bytes, 31, out), "31");
  EXPECT_DEATH(dequantize(DType::i8, bytes, 1, out), "i8 is not a type of weights");
}

}  // namespace
}  // namespace cohort
