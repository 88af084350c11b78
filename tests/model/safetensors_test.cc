// SPDX-License-Identifier: Apache-2.0
#include "model/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

namespace cohort {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A file with this header text and `data` zero bytes after it.
std::string file_of(const std::string& header, size_t data) {
  const uint64_t length = header.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  return file + header + std::string(data, '\0');
}

Result<std::vector<StoredTensor>> parse(const std::string& file,
                                        const SafetensorsLimits& limits = {}) {
  return parse_safetensors(std::as_bytes(std::span(file)), "x.safetensors", limits);
}

std::string error_of(const std::string& header, size_t data) {
  const Result<std::vector<StoredTensor>> result = parse(file_of(header, data));
  return result.ok() ? "no error" : result.status().message();
}

TEST(Safetensors, ReadsEntriesInOrderAndPassesOverMetadata) {
  const std::string file =
      file_of(R"({"__metadata__":{"format":"pt"},)"
              R"("b":{"dtype":"BF16","shape":[2,3],"data_offsets":[4,16]},)"
              R"("a":{"data_offsets":[0,4],"shape":[],"dtype":"F32"},)"
              R"("empty":{"dtype":"F32","shape":[0,7],"data_offsets":[16,16]},)"
              R"("codes":{"dtype":"U8","shape":[1],"data_offsets":[16,17]}}   )",
              17);
  const auto result = parse(file);
  ASSERT_TRUE(result.ok()) << result.status().to_string();
  ASSERT_EQ(result->size(), 4u);
  EXPECT_EQ((*result)[0].name, "b");
  EXPECT_EQ((*result)[0].dtype, DType::bf16);
  EXPECT_THAT((*result)[0].shape, ElementsAre(2, 3));
  const std::byte* data = reinterpret_cast<const std::byte*>(file.data()) + file.size() - 17;
  EXPECT_EQ((*result)[0].data.data(), data + 4);
  EXPECT_EQ((*result)[0].data.size(), 12u);
  EXPECT_TRUE((*result)[1].shape.empty());
  EXPECT_EQ((*result)[3].dtype, std::nullopt);
  EXPECT_EQ((*result)[3].type_name, "U8");
}

TEST(Safetensors, AFileWithoutTensorsIsValid) { EXPECT_TRUE(parse(file_of("{}", 0)).ok()); }

TEST(Safetensors, RefusesFilesThatAreCutShort) {
  const std::string whole = file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8);
  ASSERT_TRUE(parse(whole).ok());
  for (size_t size = 0; size < whole.size(); size++)
    EXPECT_FALSE(parse(whole.substr(0, size)).ok()) << size;
  EXPECT_FALSE(parse(whole + "x").ok());
}

TEST(Safetensors, RefusesAbsurdHeaderSizes) {
  std::string file = file_of("{}", 0);
  for (const uint64_t length : {uint64_t(3), uint64_t(100'000'001), ~uint64_t(0)}) {
    std::memcpy(file.data(), &length, 8);
    EXPECT_FALSE(parse(file).ok()) << length;
  }
}

struct BadHeader {
  const char* header;
  size_t data;
  const char* error;
};
class SafetensorsBad : public testing::TestWithParam<BadHeader> {};

TEST_P(SafetensorsBad, NamesTheReason) {
  const std::string error = error_of(GetParam().header, GetParam().data);
  EXPECT_THAT(error, HasSubstr(GetParam().error));
  EXPECT_THAT(error, HasSubstr("x.safetensors: "));
}

INSTANTIATE_TEST_SUITE_P(
    Values, SafetensorsBad,
    testing::Values(
        BadHeader{R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,12]}})", 12, "need 8 bytes"},
        BadHeader{R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8, "not within"},
        BadHeader{R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})", 8, "not within"},
        BadHeader{R"({"a":{"dtype":"F32","shape":[2],
                      "data_offsets":[18446744073709551608,18446744073709551615]}})",
                  8, "not within"},
        BadHeader{R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})",
                  0, "absurd shape"},
        BadHeader{R"({"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,0]}})", 0,
                  "absurd shape"},
        BadHeader{R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8, "negative"},
        BadHeader{R"({"a":{"dtype":"F32","shape":[2.5],"data_offsets":[0,8]}})", 8, "not whole"},
        BadHeader{R"({"a":{"dtype":"F33","shape":[2],"data_offsets":[0,8]}})", 8, "'F33'"},
        BadHeader{R"({"a":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,4]}})", 4,
                  "dimensions"}));

INSTANTIATE_TEST_SUITE_P(
    Layout, SafetensorsBad,
    testing::Values(BadHeader{R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},
                      "b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
                              12, "overlaps"},
                    BadHeader{R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},
                      "b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
                              8, "overlaps"},
                    BadHeader{R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})", 12,
                              "belong to no tensor"},
                    BadHeader{R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 9,
                              "belong to no tensor"},
                    BadHeader{R"({"a":{"dtype":"I8","shape":[1],"data_offsets":[0,1]},
                      "a":{"dtype":"I8","shape":[1],"data_offsets":[1,2]}})",
                              2, "'a' occurs twice"}));

INSTANTIATE_TEST_SUITE_P(
    Structure, SafetensorsBad,
    testing::Values(
        BadHeader{"", 0, "not valid JSON"}, BadHeader{"[]", 0, "out of place"},
        BadHeader{"1", 0, "out of place"}, BadHeader{"null", 0, "out of place"},
        BadHeader{"{}{}", 0, "not valid JSON"}, BadHeader{R"({"a":1})", 0, "out of place"},
        BadHeader{R"({"a":{}})", 0, "missing"}, BadHeader{R"({"a":{"x":1}})", 0, "unknown key"},
        BadHeader{R"({"a":{"dtype":{}}})", 0, "an object"},
        BadHeader{R"({"a":{"dtype":["F32"]}})", 0, "out of place"},
        BadHeader{R"({"a":{"shape":[[1]]}})", 0, "out of place"},
        BadHeader{R"({"a":{"dtype":"F32","dtype":"F32"}})", 0, "'dtype' occurs twice"},
        BadHeader{R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4, "two numbers"},
        BadHeader{R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,4]}})", 4,
                  "more than two"},
        BadHeader{R"({"a":{"dtype":null,"shape":[1],"data_offsets":[0,4]}})", 4, "null"},
        BadHeader{R"({"__metadata__":{"x":{"y":"z"}}})", 0, "an object"},
        BadHeader{R"({"__metadata__":{},"__metadata__":{}})", 0, "occurs twice"}));

TEST(Safetensors, DeepNestingCostsNothing) {
  EXPECT_FALSE(parse(file_of(std::string(1 << 20, '['), 0)).ok());
  std::string objects;
  for (int i = 0; i < 100'000; i++) objects += R"({"a":)";
  EXPECT_FALSE(parse(file_of(objects, 0)).ok());
}

TEST(Safetensors, LimitsTheNumberOfTensors) {
  const std::string file = file_of(R"({"a":{"dtype":"I8","shape":[1],"data_offsets":[0,1]},
                                       "b":{"dtype":"I8","shape":[1],"data_offsets":[1,2]}})",
                                   2);
  EXPECT_TRUE(parse(file).ok());
  EXPECT_FALSE(parse(file, {.tensors = 1}).ok());
}

}  // namespace
}  // namespace cohort
