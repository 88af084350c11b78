// SPDX-License-Identifier: Apache-2.0
#include "model/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <numeric>

#include "tests/support/gguf_writer.h"

namespace cohort {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

Result<std::unique_ptr<GgufFile>> parse(const std::string& bytes) {
  return GgufFile::parse(std::as_bytes(std::span(bytes)), "model.gguf");
}

// The message of the refusal; every one names the file.
std::string refusal(const std::string& bytes) {
  const auto file = parse(bytes);
  if (file.ok()) return "it was accepted";
  EXPECT_EQ(file.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(file.status().message(), testing::StartsWith("model.gguf: "));
  return file.status().message();
}

GgufWriter sample(uint32_t version, uint64_t alignment) {
  GgufWriter w(version, alignment);
  w.add_string("general.architecture", "llama");
  w.add_bool("flag", true);
  w.add_u32("u32", 4000000000u);
  w.add_i32("i32", -7);
  w.add_u64("u64.large", ~uint64_t(0));
  w.add_i64("i64", int64_t(1) << 40);
  w.add_f32("f32", 0.5f);
  w.add_f64("f64", 1e-6);
  w.add_strings("tokens", {"a", "", "\xc4\xa0"});
  w.add_i32s("types", {1, -2, 3});
  w.add_f32s("scores", {0.25f, -1.0f});
  w.add_raw("u8", 0, "\xff");
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  w.add_f32_tensor("matrix", {2, 3}, values);
  w.add_tensor("blocks", DType::q4_0, {2, 64}, std::vector<std::byte>(2 * 2 * 18, std::byte(9)));
  return w;
}

void expect_sample(const GgufFile& f) {
  EXPECT_EQ(f.string("general.architecture"), "llama");
  EXPECT_EQ(f.boolean("flag"), true);
  EXPECT_EQ(f.integer("u32"), 4000000000);
  EXPECT_EQ(f.integer("i32"), -7);
  EXPECT_EQ(f.integer("u64.large"), std::nullopt);
  EXPECT_EQ(f.number("u64.large"), 18446744073709551616.0);
  EXPECT_EQ(f.integer("i64"), 1099511627776);
  EXPECT_EQ(f.number("f32"), 0.5);
  EXPECT_EQ(f.number("i32"), -7.0);
  EXPECT_EQ(f.number("f64"), 1e-6);
  EXPECT_EQ(f.integer("u8"), 255);
  EXPECT_THAT(*f.strings("tokens"), ElementsAre("a", "", "\xc4\xa0"));
  EXPECT_THAT(*f.integers("types"), ElementsAre(1, -2, 3));
  EXPECT_THAT(*f.numbers("scores"), ElementsAre(0.25, -1.0));
  EXPECT_EQ(f.integer("absent"), std::nullopt);
  EXPECT_EQ(f.integer("flag"), std::nullopt);
  EXPECT_EQ(f.strings("types"), nullptr);

  ASSERT_EQ(f.tensors().size(), 2u);
  const GgufTensor& matrix = f.tensors()[0];
  EXPECT_EQ(matrix.name, "matrix");
  EXPECT_EQ(matrix.dtype, DType::f32);
  EXPECT_THAT(matrix.shape, ElementsAre(2, 3));
  ASSERT_EQ(matrix.bytes, 24);
  float values[6];
  std::memcpy(values, matrix.data, 24);
  EXPECT_THAT(values, ElementsAre(1, 2, 3, 4, 5, 6));
  const GgufTensor& blocks = f.tensors()[1];
  EXPECT_EQ(blocks.dtype, DType::q4_0);
  EXPECT_EQ(blocks.bytes, 72);
  EXPECT_EQ(blocks.data[71], std::byte(9));
}

TEST(Gguf, ReadsBothVersionsAndAlignments) {
  for (uint32_t version : {2u, 3u})
    for (uint64_t alignment : {8u, 32u, 4096u}) {
      SCOPED_TRACE(concat("version ", version, " alignment ", alignment));
      const std::string bytes = sample(version, alignment).bytes();
      const auto file = parse(bytes);
      ASSERT_TRUE(file.ok()) << file.status().message();
      EXPECT_EQ((*file)->version(), int(version));
      expect_sample(**file);
    }
}

TEST(Gguf, OpensAMappedFile) {
  const std::string path = testing::TempDir() + "/gguf_test_mapped.gguf";
  sample(3, 32).write(path);
  const auto file = GgufFile::open(path);
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ((*file)->path(), path);
  expect_sample(**file);
  std::remove(path.c_str());
}

TEST(Gguf, NamesFilesThatCannotBeOpened) {
  const std::string folder = testing::TempDir();
  EXPECT_EQ(GgufFile::open(folder + "/absent.gguf").status().code(), Code::kNotFound);
  EXPECT_THAT(GgufFile::open(folder).status().message(), HasSubstr("not a regular file"));
  const std::string empty = folder + "/gguf_test_empty.gguf";
  std::ofstream(empty).flush();
  EXPECT_THAT(GgufFile::open(empty).status().message(),
              AllOf(HasSubstr(empty), HasSubstr("not a GGUF file")));
  std::remove(empty.c_str());
}

TEST(Gguf, RefusesEveryCutWithoutReadingPastIt) {
  const std::string whole = sample(3, 32).bytes();
  for (size_t length = 0; length < whole.size(); length++) {
    // A copy of exactly that length, so that a sanitizer sees any byte read beyond it.
    const std::vector<char> cut(whole.begin(), whole.begin() + std::ptrdiff_t(length));
    EXPECT_FALSE(GgufFile::parse(std::as_bytes(std::span(cut)), "cut").ok()) << length;
  }
}

TEST(Gguf, RefusesForeignFilesAndVersions) {
  EXPECT_THAT(refusal("PK\x03\x04 and so on, a zip archive"), HasSubstr("not a GGUF file"));
  EXPECT_THAT(refusal(GgufWriter(1).bytes()), HasSubstr("version 1 is not supported"));
  EXPECT_THAT(refusal(GgufWriter(4).bytes()), HasSubstr("version 4 is not supported"));
  EXPECT_THAT(refusal(GgufWriter(0x03000000).bytes()), HasSubstr("big-endian"));
}

TEST(Gguf, RefusesAbsurdCounts) {
  std::string bytes = sample(3, 32).bytes();
  const uint64_t absurd = uint64_t(1) << 60;
  std::memcpy(bytes.data() + 8, &absurd, 8);
  EXPECT_THAT(refusal(bytes), HasSubstr("1152921504606846976 tensors"));
  bytes = sample(3, 32).bytes();
  std::memcpy(bytes.data() + 16, &absurd, 8);
  EXPECT_THAT(refusal(bytes), HasSubstr("1152921504606846976 keys"));
  GgufWriter w;
  w.add_raw("long", 9, std::string("\x05\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff", 12));
  EXPECT_THAT(refusal(w.bytes()), AllOf(HasSubstr("key \"long\""), HasSubstr("elements")));
}

TEST(Gguf, RefusesBadKeysAndValues) {
  GgufWriter twice;
  twice.add_bool("a.b", true);
  twice.add_u32("a.b", 1);
  EXPECT_THAT(refusal(twice.bytes()), HasSubstr("key \"a.b\" appears twice"));
  GgufWriter type;
  type.add_raw("odd", 13, "12345678");
  EXPECT_THAT(refusal(type.bytes()), HasSubstr("key \"odd\" has the unknown value type 13"));
  GgufWriter boolean;
  boolean.add_raw("odd", 7, "\x02");
  EXPECT_THAT(refusal(boolean.bytes()), HasSubstr("key \"odd\": a bool of value 2"));
  GgufWriter nested;
  nested.add_raw("nest", 9, std::string("\x09\0\0\0\x01\0\0\0\0\0\0\0", 12));
  EXPECT_THAT(refusal(nested.bytes()), HasSubstr("array of arrays"));
  GgufWriter alignment;
  alignment.add_u32("general.alignment", 24);
  EXPECT_THAT(refusal(alignment.bytes()), HasSubstr("general.alignment"));
}

// A file with one F32 tensor of 8 elements and the description of a second one.
std::string with_tensor(uint32_t type, const std::vector<uint64_t>& shape, uint64_t offset,
                        const std::string& name = "second") {
  GgufWriter w;
  w.add_f32_tensor("first", {8}, std::vector<float>(8, 1.0f));
  w.add_raw_tensor(name, type, shape, offset);
  return w.bytes() + std::string(64, '\0');
}

TEST(Gguf, RefusesBadTensors) {
  EXPECT_TRUE(parse(with_tensor(0, {8}, 32)).ok());
  EXPECT_THAT(refusal(with_tensor(0, {8}, 32, "first")), HasSubstr("\"first\" appears twice"));
  EXPECT_THAT(refusal(with_tensor(0, {8}, 0)), HasSubstr("overlaps tensor"));
  EXPECT_THAT(refusal(with_tensor(0, {8}, 40)), HasSubstr("not a multiple of 32"));
  EXPECT_THAT(refusal(with_tensor(0, {8}, 96)), HasSubstr("\"second\" needs 32 bytes"));
  EXPECT_THAT(refusal(with_tensor(0, {800}, 32)), HasSubstr("\"second\" needs 3200 bytes"));
  EXPECT_THAT(refusal(with_tensor(0, {8}, ~uint64_t(31))), HasSubstr("\"second\" needs 32 bytes"));
  EXPECT_THAT(refusal(with_tensor(99, {8}, 32)), HasSubstr("unsupported type number 99"));
  EXPECT_THAT(refusal(with_tensor(2, {8}, 32)), HasSubstr("not whole q4_0 blocks"));
  EXPECT_THAT(refusal(with_tensor(0, {0}, 32)), HasSubstr("a dimension of 0"));
  EXPECT_THAT(refusal(with_tensor(0, {}, 32)), HasSubstr("0 dimensions"));
  EXPECT_THAT(refusal(with_tensor(0, {1, 1, 1, 1, 1}, 32)), HasSubstr("5 dimensions"));
  const uint64_t big = uint64_t(1) << 40;
  EXPECT_THAT(refusal(with_tensor(0, {big, big}, 32)), HasSubstr("larger than any file"));
}

}  // namespace
}  // namespace cohort
