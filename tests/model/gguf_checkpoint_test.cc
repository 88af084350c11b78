// SPDX-License-Identifier: Apache-2.0
// Checkpoints over small GGUF files with quantized weights.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <functional>
#include <map>

#include "model/checkpoint.h"
#include "tests/support/gguf_writer.h"

namespace cohort {
namespace {

using testing::HasSubstr;

struct Spec {
  DType type;
  std::vector<int64_t> shape;
};
using Specs = std::map<std::string, Spec>;

constexpr int64_t kHidden = 64, kFfn = 96;

Specs one_layer(DType type) {
  return {{"token_embd.weight", {type, {8, kHidden}}},
          {"output_norm.weight", {DType::f32, {kHidden}}},
          {"blk.0.attn_norm.weight", {DType::f32, {kHidden}}},
          {"blk.0.attn_q.weight", {type, {kHidden, kHidden}}},
          {"blk.0.attn_k.weight", {type, {32, kHidden}}},
          {"blk.0.attn_v.weight", {type, {32, kHidden}}},
          {"blk.0.attn_output.weight", {type, {kHidden, kHidden}}},
          {"blk.0.ffn_norm.weight", {DType::f32, {kHidden}}},
          {"blk.0.ffn_gate.weight", {type, {kFfn, kHidden}}},
          {"blk.0.ffn_up.weight", {type, {kFfn, kHidden}}},
          {"blk.0.ffn_down.weight", {type, {kHidden, kFfn}}}};
}

std::vector<std::byte> bytes_for(const Spec& spec, uint32_t seed) {
  int64_t elements = 1;
  for (const int64_t n : spec.shape) elements *= n;
  std::vector<std::byte> bytes(size_t(bytes_of(spec.type, elements)));
  for (std::byte& byte : bytes) byte = std::byte((seed = seed * 1664525 + 1013904223) >> 24);
  return bytes;
}

class GgufCheckpoint : public testing::Test {
 protected:
  void SetUp() override {
    std::string folder = std::filesystem::temp_directory_path() / "cohort-gguf-XXXXXX";
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  Result<std::unique_ptr<Checkpoint>> open(const Specs& specs) {
    GgufWriter writer;
    writer.add_string("general.architecture", "llama");
    writer.add_u32("llama.embedding_length", kHidden);
    writer.add_u32("llama.block_count", 1);
    writer.add_u32("llama.attention.head_count", 4);
    writer.add_u32("llama.attention.head_count_kv", 2);
    writer.add_u32("llama.feed_forward_length", kFfn);
    writer.add_u32("llama.context_length", 128);
    writer.add_f32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
    uint32_t seed = 1;
    for (const auto& [name, spec] : specs) {
      data_[name] = bytes_for(spec, seed++);
      writer.add_tensor(name, spec.type, spec.shape, data_[name]);
    }
    // Without the ending: the first bytes tell as well.
    const std::string path = (folder_ / "model").string();
    writer.write(path);
    return Checkpoint::open(path);
  }
  std::string error_of(const Specs& specs) {
    const auto opened = open(specs);
    return opened.ok() ? "no error" : opened.status().message();
  }

  std::filesystem::path folder_;
  std::map<std::string, std::vector<std::byte>> data_;
};

TEST_F(GgufCheckpoint, ReadsColumnsInWholeBlocks) {
  const auto opened = open(one_layer(DType::q4_1));
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();
  Checkpoint& checkpoint = **opened;
  const WeightInfo& down = *checkpoint.find("layers.0.feed_forward.down");
  EXPECT_EQ(down.dtype, DType::q4_1);
  // 96 columns are 3 blocks of 20 bytes; take the last two of rows 5 and 6.
  std::vector<std::byte> part(2 * 40);
  ASSERT_TRUE(checkpoint.read(down, 5, 7, 32, 96, part.data()).ok());
  const std::vector<std::byte>& all = data_["blk.0.ffn_down.weight"];
  EXPECT_EQ(std::memcmp(part.data(), all.data() + 5 * 60 + 20, 40), 0);
  EXPECT_EQ(std::memcmp(part.data() + 40, all.data() + 6 * 60 + 20, 40), 0);
  EXPECT_EQ(checkpoint.bytes_read(), 80);
  EXPECT_FALSE(checkpoint.read(down, 5, 7, 16, 48, part.data()).ok());
  EXPECT_FALSE(checkpoint.read(down, 5, 7, 32, 80, part.data()).ok());
  EXPECT_EQ(checkpoint.bytes_read(), 80);
}

TEST_F(GgufCheckpoint, EveryBlockTypeOpens) {
  for (const DType type : {DType::f32, DType::f16, DType::bf16, DType::q8_0, DType::q4_0,
                           DType::q4_1, DType::q5_0, DType::q5_1}) {
    const auto opened = open(one_layer(type));
    ASSERT_TRUE(opened.ok()) << name(type) << ": " << opened.status().to_string();
    EXPECT_EQ((*opened)->find("layers.0.attention.k")->bytes(), bytes_of(type, 32 * kHidden));
  }
}

TEST_F(GgufCheckpoint, NamesTensorsThatDoNotFit) {
  const auto with = [&](const char* name, Spec spec) {
    Specs specs = one_layer(DType::q8_0);
    specs[name] = std::move(spec);
    return error_of(specs);
  };
  EXPECT_THAT(with("blk.0.attn_k.weight", {DType::q8_0, {64, 64}}),
              HasSubstr("'blk.0.attn_k.weight' has shape [64, 64]; by the model's settings it "
                        "should have [32, 64]"));
  EXPECT_THAT(with("blk.0.attn_k.weight", {DType::q8_0, {32 * 64}}), HasSubstr("[2048]"));
  EXPECT_THAT(with("blk.0.attn_norm.weight", {DType::q8_0, {64}}), HasSubstr("type q8_0"));
  EXPECT_THAT(with("blk.0.attn_v.weight", {DType::i32, {32, 64}}), HasSubstr("type i32"));
  EXPECT_THAT(with("blk.0.attn_q.bias", {DType::f32, {64}}),
              HasSubstr("'blk.0.attn_q.bias' is no part of a model of family 'llama'"));
  EXPECT_THAT(with("blk.1.attn_norm.weight", {DType::f32, {64}}), HasSubstr("blk.1.attn_norm"));
  EXPECT_THAT(with("output.weight", {DType::q8_0, {9, 64}}), HasSubstr("[9, 64]"));
  Specs without = one_layer(DType::q8_0);
  without.erase("blk.0.ffn_up.weight");
  EXPECT_THAT(error_of(without), HasSubstr("'blk.0.ffn_up.weight' is missing"));
  without = one_layer(DType::q8_0);
  without.erase("token_embd.weight");
  EXPECT_THAT(error_of(without), HasSubstr("'token_embd.weight' is missing"));
}

}  // namespace
}  // namespace cohort
