// SPDX-License-Identifier: Apache-2.0
#include "model/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "model/families.h"
#include "tests/support/gguf_writer.h"

namespace cohort {
namespace {

using nlohmann::json;
using testing::HasSubstr;

void expect_frequencies(const RopeConfig& rope, const std::map<size_t, double>& expected) {
  const std::vector<double> frequencies = rope_frequencies(rope);
  ASSERT_EQ(frequencies.size(), size_t(rope.dims / 2));
  // The reference computes in f32.
  for (const auto& [i, value] : expected)
    EXPECT_NEAR(frequencies[i], value, 2e-6 * value) << "frequency " << i;
}

TEST(RopeFrequencies, AreTheFormulaWithoutScaling) {
  const std::vector<double> f = rope_frequencies({.dims = 8, .theta = 10000});
  ASSERT_EQ(f.size(), 4u);
  for (size_t i = 0; i < 4; i++) EXPECT_DOUBLE_EQ(f[i], std::pow(10.0, -double(i)));
}

// Expected: LlamaRotaryEmbedding(...).inv_freq of transformers 5.24.0 for Llama 3.1's settings.
TEST(RopeFrequencies, EqualTransformersForLlama3) {
  expect_frequencies({.dims = 128, .theta = 500000, .llama3 = RopeConfig::Llama3{8, 1, 4, 8192}},
                     {{0, 1.0},
                      {1, 0.81461722},
                      {10, 0.12868738},
                      {24, 0.0072926651},
                      {28, 0.0032114461},
                      {29, 0.0021665706},
                      {30, 0.0013718937},
                      {32, 0.00052484602},
                      {34, 0.00017850779},
                      {35, 9.5562122e-05},
                      {36, 7.7846555e-05},
                      {40, 3.4281024e-05},
                      {63, 3.0689259e-07}});
}

TEST(RopeFrequencies, EqualTransformersForLinearScaling) {
  expect_frequencies({.dims = 64, .theta = 10000, .linear_factor = 4}, {{0, 0.25},
                                                                        {1, 0.18747355},
                                                                        {10, 0.014058532},
                                                                        {24, 0.00025000001},
                                                                        {28, 7.9056947e-05},
                                                                        {30, 4.4456985e-05}});
}

// Expected: inv_freq of transformers 5.24.0 for Qwen3 with its documented setting for long texts.
TEST(RopeFrequencies, EqualTransformersForYarn) {
  expect_frequencies(
      {.dims = 128, .theta = 1e6, .yarn = RopeConfig::Yarn{.factor = 4, .original_context = 32768}},
      {{0, 1.0},
       {1, 0.80584222},
       {10, 0.1154782},
       {20, 0.013335215},
       {23, 0.006978306},
       {24, 0.0053753215},
       {25, 0.0041317381},
       {28, 0.0018482766},
       {32, 0.00060294115},
       {36, 0.00017984115},
       {39, 6.4903943e-05},
       {40, 4.4456985e-05},
       {41, 3.5825316e-05},
       {50, 5.1338125e-06},
       {63, 3.1023444e-07}});
}

// Expected: the same for DeepSeek-V2's settings.
TEST(RopeFrequencies, EqualTransformersForYarnOfFewDimensions) {
  expect_frequencies({.dims = 64,
                      .theta = 10000,
                      .yarn = RopeConfig::Yarn{.factor = 40, .original_context = 4096}},
                     {{0, 1.0},
                      {1, 0.7498942},
                      {9, 0.074989416},
                      {10, 0.056234129},
                      {11, 0.039006926},
                      {12, 0.026879361},
                      {15, 0.0083345091},
                      {20, 0.00079056941},
                      {22, 0.00017782794},
                      {23, 3.3338034e-05},
                      {24, 2.4999999e-05},
                      {31, 3.3338035e-06}});
}

// Expected: the same, with bounds of the ramp that are no whole dimensions.
TEST(RopeFrequencies, EqualTransformersForYarnWithoutTruncation) {
  expect_frequencies({.dims = 64,
                      .theta = 10000,
                      .yarn = RopeConfig::Yarn{.factor = 40,
                                               .original_context = 4096,
                                               .beta_fast = 30,
                                               .beta_slow = 2,
                                               .truncate = false}},
                     {{0, 1.0},
                      {9, 0.074989416},
                      {10, 0.056234129},
                      {11, 0.040843252},
                      {15, 0.007388209},
                      {20, 0.00011353099},
                      {21, 5.9284346e-05},
                      {22, 4.4456985e-05},
                      {31, 3.3338035e-06}});
}

TEST(RopeFrequencies, AreDividedByTheDivisors) {
  const std::vector<double> f =
      rope_frequencies({.dims = 4, .theta = 100, .frequency_divisors = {2, 8}});
  EXPECT_DOUBLE_EQ(f[0], 0.5);
  EXPECT_DOUBLE_EQ(f[1], 0.1 / 8);
}

// --- GGUF settings ---

void add_llama(GgufWriter& writer) {
  writer.add_string("general.architecture", "llama");
  writer.add_u32("llama.embedding_length", 64);
  writer.add_u32("llama.block_count", 2);
  writer.add_u32("llama.attention.head_count", 4);
  writer.add_u32("llama.attention.head_count_kv", 2);
  writer.add_u32("llama.feed_forward_length", 128);
  writer.add_u32("llama.context_length", 2048);
  writer.add_f32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
}

Result<KnownModel> recognise_gguf(GgufWriter& writer) {
  writer.add_f32_tensor("token_embd.weight", {10, 64}, std::vector<float>(640));
  const std::string bytes = writer.bytes();
  const auto file = GgufFile::parse(std::as_bytes(std::span(bytes)), "x.gguf");
  if (!file.ok()) return file.status();
  return recognise(**file);
}

std::string gguf_error(GgufWriter& writer) {
  const auto result = recognise_gguf(writer);
  return result.ok() ? "no error" : result.status().message();
}

TEST(GgufConfig, DefaultsOfWhatIsNotSaid) {
  GgufWriter writer;
  add_llama(writer);
  const auto known = recognise_gguf(writer);
  ASSERT_TRUE(known.ok()) << known.status().to_string();
  const ModelConfig& config = known->config;
  EXPECT_EQ(config.head_dim, 16);
  EXPECT_EQ(config.vocab, 10);
  EXPECT_EQ(config.rope.dims, 16);
  EXPECT_EQ(config.rope.theta, 10000);
  EXPECT_EQ(config.rope.linear_factor, 1);
  EXPECT_EQ(config.norm_eps, double(1e-5f));
  EXPECT_TRUE(config.tied_embedding);
}

TEST(GgufConfig, ReadsLinearScalingUnderBothNames) {
  GgufWriter now, before, off;
  add_llama(now);
  now.add_string("llama.rope.scaling.type", "linear");
  now.add_f32("llama.rope.scaling.factor", 4);
  EXPECT_EQ(recognise_gguf(now)->config.rope.linear_factor, 4);
  add_llama(before);
  before.add_f32("llama.rope.scale_linear", 2);
  EXPECT_EQ(recognise_gguf(before)->config.rope.linear_factor, 2);
  add_llama(off);
  off.add_string("llama.rope.scaling.type", "none");
  off.add_f32("llama.rope.scaling.factor", 4);
  EXPECT_EQ(recognise_gguf(off)->config.rope.linear_factor, 1);
}

TEST(GgufConfig, ReadsDivisorsOfFrequencies) {
  GgufWriter writer;
  add_llama(writer);
  writer.add_u32("llama.rope.dimension_count", 8);
  writer.add_f32_tensor("rope_freqs.weight", {4}, std::vector<float>{1, 2, 4, 8});
  EXPECT_THAT(recognise_gguf(writer)->config.rope.frequency_divisors,
              testing::ElementsAre(1, 2, 4, 8));
  GgufWriter wrong;
  add_llama(wrong);
  wrong.add_f32_tensor("rope_freqs.weight", {4}, std::vector<float>{1, 2, 4, 8});
  EXPECT_THAT(gguf_error(wrong), HasSubstr("must hold 8 numbers"));
  GgufWriter zero;
  add_llama(zero);
  zero.add_f32_tensor("rope_freqs.weight", {8}, std::vector<float>(8));
  EXPECT_THAT(gguf_error(zero), HasSubstr("out of range"));
}

TEST(GgufConfig, RefusesWhatItCannotCompute) {
  const std::vector<std::pair<std::function<void(GgufWriter&)>, const char*>> cases = {
      {[](GgufWriter& w) { w.add_u32("llama.expert_count", 8); }, "'expert_used_count' is missing"},
      {[](GgufWriter& w) { w.add_u32("llama.attention.value_length", 8); }, "values of 8"},
      {[](GgufWriter& w) { w.add_string("llama.rope.scaling.type", "longrope"); }, "'longrope'"},
      {[](GgufWriter& w) { w.add_string("llama.rope.scaling.type", "yarn"); }, "scaling.factor"},
      {[](GgufWriter& w) { w.add_u32("llama.rope.dimension_count", 17); }, "dimension_count"},
      {[](GgufWriter& w) { w.add_u32("llama.rope.dimension_count", 7); }, "even number"},
      {[](GgufWriter& w) { w.add_string("llama.rope.freq_base", "x"); }, "freq_base"},
      {[](GgufWriter& w) { w.add_f32("llama.rope.freq_base", -1); }, "out of range"},
      {[](GgufWriter& w) { w.add_f32("llama.rope.freq_base", NAN); }, "out of range"},
      {[](GgufWriter& w) {
         w.add_i32s("llama.attention.key_length", {1, 2});
       },
       "key_length"},
  };
  for (const auto& [change, error] : cases) {
    GgufWriter writer;
    add_llama(writer);
    change(writer);
    EXPECT_THAT(gguf_error(writer), HasSubstr(error));
  }
  GgufWriter falcon;
  falcon.add_string("general.architecture", "falcon");
  EXPECT_THAT(gguf_error(falcon), HasSubstr("'falcon' is not supported; supported are: llama"));
  GgufWriter nameless;
  nameless.add_string("general.name", "x");
  EXPECT_THAT(gguf_error(nameless), HasSubstr("'general.architecture' is missing"));
}

}  // namespace
}  // namespace cohort
