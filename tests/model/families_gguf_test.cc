// SPDX-License-Identifier: Apache-2.0
// The same models as GGUF files: tiny checkpoints are written again under GGUF's names, experts
// stacked, and must come out as they went in.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <functional>

#include "model/checkpoint.h"
#include "tests/model/gguf_tensors.h"
#include "tests/support/gguf_writer.h"

namespace cohort {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

const std::string kModels = "tests/data/tiny_models/";

std::unique_ptr<Checkpoint> open(const std::string& path) {
  Result<std::unique_ptr<Checkpoint>> opened = Checkpoint::open(path);
  EXPECT_TRUE(opened.ok()) << opened.status().to_string();
  return opened.ok() ? *std::move(opened) : nullptr;
}

class FamiliesGguf : public testing::Test {
 protected:
  using Edit = std::function<void(GgufWriter& writer, Tensors& tensors)>;

  void SetUp() override {
    std::string folder = fs::temp_directory_path() / "cohort-families-XXXXXX";
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
  }
  void TearDown() override { fs::remove_all(folder_); }

  // The settings that every architecture has.
  static void add_settings(const std::string& arch, const ModelConfig& c, GgufWriter& writer) {
    const auto u32 = [&](const char* key, int64_t value) {
      writer.add_u32(concat(arch, ".", key), uint32_t(value));
    };
    writer.add_string("general.architecture", arch);
    u32("embedding_length", c.hidden);
    u32("block_count", c.layers);
    u32("attention.head_count", c.heads);
    u32("attention.head_count_kv", c.kv_heads);
    u32("attention.key_length", c.head_dim);
    u32("attention.value_length", c.latent.value_dim != 0 ? c.latent.value_dim : c.head_dim);
    u32("rope.dimension_count", c.rope.dims);
    u32("feed_forward_length", c.ffn != 0 ? c.ffn : c.experts.ffn);
    u32("context_length", c.context);
    writer.add_f64(arch + ".attention.layer_norm_rms_epsilon", c.norm_eps);
    writer.add_f64(arch + ".rope.freq_base", c.rope.theta);
    if (c.experts.count != 0) {
      u32("expert_count", c.experts.count);
      u32("expert_used_count", c.experts.per_token);
      u32("expert_feed_forward_length", c.experts.ffn);
    }
    if (c.rope.yarn) {
      writer.add_string(arch + ".rope.scaling.type", "yarn");
      writer.add_f64(arch + ".rope.scaling.factor", c.rope.yarn->factor);
      u32("rope.scaling.original_context_length", c.rope.yarn->original_context);
      writer.add_f64(arch + ".rope.scaling.yarn_beta_fast", c.rope.yarn->beta_fast);
    }
  }

  static void add_deepseek(const ModelConfig& c, GgufWriter& w) {
    const std::string arch = "deepseek2.";
    w.add_u32(arch + "attention.kv_lora_rank", uint32_t(c.latent.kv_rank));
    if (c.latent.q_rank != 0) w.add_u32(arch + "attention.q_lora_rank", uint32_t(c.latent.q_rank));
    w.add_u32(arch + "leading_dense_block_count", uint32_t(c.experts.dense_layers.size()));
    w.add_u32(arch + "expert_shared_count", uint32_t(c.experts.shared_ffn / c.experts.ffn));
    w.add_f64(arch + "expert_weights_scale", c.experts.scale);
    w.add_bool(arch + "expert_weights_norm", c.experts.normalise);
    if (c.experts.score == ExpertsConfig::Score::sigmoid) w.add_u32(arch + "expert_gating_func", 2);
    if (c.experts.groups > 1) {
      w.add_u32(arch + "expert_group_count", uint32_t(c.experts.groups));
      w.add_u32(arch + "expert_group_used_count", uint32_t(c.experts.groups_per_token));
    }
  }

  Result<std::unique_ptr<Checkpoint>> rewrite(const std::string& arch, Checkpoint& from,
                                              const Edit& edit) {
    GgufWriter writer;
    Tensors tensors = tensors_of(from);
    add_settings(arch, from.config(), writer);
    edit(writer, tensors);
    for (const auto& [name, stored] : tensors)
      writer.add_tensor(name, stored.type, stored.shape, stored.data);
    const std::string path = (folder_ / "model.gguf").string();
    writer.write(path);
    return Checkpoint::open(path);
  }

  void expect_same(
      const std::string& arch, const std::string& model, const Edit& edit,
      const std::function<void(ModelConfig&)>& adjust = [](ModelConfig&) {}) {
    const auto from = open(kModels + model);
    const auto opened = rewrite(arch, *from, edit);
    ASSERT_TRUE(opened.ok()) << opened.status().to_string();
    Checkpoint& to = **opened;
    ModelConfig expected = from->config();
    expected.name = "";
    adjust(expected);
    EXPECT_EQ(to.config(), expected);
    ASSERT_EQ(to.weights().size(), from->weights().size());
    for (const WeightInfo& weight : from->weights()) {
      const WeightInfo* found = to.find(weight.name);
      ASSERT_NE(found, nullptr) << weight.name;
      EXPECT_EQ(found->rows, weight.rows) << weight.name;
      EXPECT_EQ(found->columns, weight.columns) << weight.name;
      EXPECT_EQ(read_all(to, *found), read_all(*from, weight)) << weight.name;
    }
    EXPECT_EQ(to.total_weight_bytes(), from->total_weight_bytes());
  }

  std::string error_of(const std::string& arch, const std::string& model, const Edit& edit) {
    const auto opened = rewrite(arch, *open(kModels + model), edit);
    return opened.ok() ? "no error" : opened.status().message();
  }

  fs::path folder_;
};

void nothing(GgufWriter&, Tensors&) {}

TEST_F(FamiliesGguf, WithoutSettingsOfTheirOwn) {
  expect_same("olmoe", "olmoe", nothing);
  expect_same("qwen2", "qwen2", nothing);
  expect_same("qwen3", "qwen3", nothing);
}

TEST_F(FamiliesGguf, QwenWithExperts) {
  expect_same("qwen2moe", "qwen2_moe", [](GgufWriter& w, Tensors&) {
    w.add_u32("qwen2moe.expert_shared_feed_forward_length", 40);
  });
  expect_same("qwen3moe", "qwen3_moe", nothing);
}

// No model that is published has magnitudes that differ, and a file can hold but one.
TEST_F(FamiliesGguf, DeepSeekV2) {
  const auto from = open(kModels + "deepseek_v2");
  expect_same(
      "deepseek2", "deepseek_v2",
      [&](GgufWriter& w, Tensors&) {
        add_deepseek(from->config(), w);
        w.add_f64("deepseek2.rope.scaling.yarn_log_multiplier", 0.1 * 0.7);
      },
      [](ModelConfig& config) { config.rope.yarn->attention_factor = 1; });
  const auto lite = open(kModels + "deepseek_v2_lite");
  expect_same("deepseek2", "deepseek_v2_lite",
              [&](GgufWriter& w, Tensors&) { add_deepseek(lite->config(), w); });
}

TEST_F(FamiliesGguf, DeepSeekV3) {
  const auto from = open(kModels + "deepseek_v3");
  expect_same(
      "deepseek2", "deepseek_v3",
      [&](GgufWriter& w, Tensors&) {
        add_deepseek(from->config(), w);
        w.add_f64("deepseek2.rope.scaling.yarn_log_multiplier", 0.1);
      },
      [](ModelConfig& config) { config.draft_layers = 0; });
}

// Files of today hold kv_up in two parts, that of the keys transposed: [heads, kv_rank, nope_dim].
void split_kv_up(const ModelConfig& c, DType type, Tensors& tensors) {
  const int64_t nope = c.latent.nope_dim, value = c.latent.value_dim, rank = c.latent.kv_rank;
  for (int64_t layer = 0; layer < c.layers; layer++) {
    const std::string block = concat("blk.", layer, ".");
    const Stored whole = tensors.at(block + "attn_kv_b.weight");
    tensors.erase(block + "attn_kv_b.weight");
    std::vector<float> w(size_t(c.heads * (nope + value) * rank)), keys, values;
    dequantize(whole.type, whole.data.data(), int64_t(w.size()), w.data());
    for (int64_t head = 0; head < c.heads; head++) {
      const float* first = &w[size_t(head * (nope + value) * rank)];
      for (int64_t column = 0; column < rank; column++)
        for (int64_t row = 0; row < nope; row++) keys.push_back(first[row * rank + column]);
      values.insert(values.end(), first + nope * rank, first + (nope + value) * rank);
    }
    const auto store = [&](const std::vector<float>& from, const char* name, int64_t rows,
                           int64_t columns) {
      Stored stored{type, {c.heads, rows, columns}, {}};
      const auto bytes = std::as_bytes(std::span(from));
      stored.data.assign(bytes.begin(), bytes.end());
      if (type == DType::bf16) {  // the upper halves: the values are bf16 already
        stored.data.clear();
        for (size_t i = 0; i < bytes.size(); i += 4)
          stored.data.insert(stored.data.end(), {bytes[i + 2], bytes[i + 3]});
      }
      tensors[block + name] = std::move(stored);
    };
    store(keys, "attn_k_b.weight", rank, nope);
    store(values, "attn_v_b.weight", value, rank);
  }
}

void add_split_lengths(const ModelConfig& c, GgufWriter& w) {
  w.add_u32("deepseek2.attention.key_length_mla", uint32_t(c.head_dim));
  w.add_u32("deepseek2.attention.value_length_mla", uint32_t(c.latent.value_dim));
}

TEST_F(FamiliesGguf, DeepSeekWithKeysAndValuesApart) {
  const auto from = open(kModels + "deepseek_v2_lite");
  const ModelConfig& config = from->config();
  for (const DType type : {DType::f32, DType::bf16}) {
    const auto opened = rewrite("deepseek2", *from, [&](GgufWriter& w, Tensors& tensors) {
      add_deepseek(config, w);
      add_split_lengths(config, w);
      split_kv_up(config, type, tensors);
    });
    ASSERT_TRUE(opened.ok()) << opened.status().to_string();
    EXPECT_EQ((*opened)->config().latent, config.latent);
    EXPECT_EQ((*opened)->config().head_dim, config.head_dim);
    const std::string name = "layers.1.attention.kv_up";
    const WeightInfo &weight = *(*opened)->find(name), &right = *from->find(name);
    EXPECT_EQ(weight.dtype, DType::f32);
    ASSERT_EQ(shape_of(weight), shape_of(right));
    std::vector<float> expected(size_t(right.rows * right.columns));
    dequantize(right.dtype, read_all(*from, right).data(), int64_t(expected.size()),
               expected.data());
    const auto bytes = std::as_bytes(std::span(expected));
    EXPECT_EQ(read_all(**opened, weight), (std::vector<std::byte>(bytes.begin(), bytes.end())));
    // A rectangle from the keys of one head to the values of the next.
    std::vector<float> part(50 * 3);
    ASSERT_TRUE(
        (*opened)->read(weight, 10, 60, 7, 10, reinterpret_cast<std::byte*>(part.data())).ok());
    for (size_t i = 0; i < part.size(); i++)
      ASSERT_EQ(part[i], expected[(10 + i / 3) * size_t(right.columns) + 7 + i % 3]) << i;
  }
}

// The committed file, which the gguf package wrote. Queries and keys are permuted in it.
TEST_F(FamiliesGguf, Mixtral) {
  const auto from = open(kModels + "mixtral"), to = open(kModels + "mixtral/mixtral.gguf");
  EXPECT_EQ(to->config().experts, from->config().experts);
  EXPECT_EQ(to->config().rope.pairing, RopePairing::neighbours);
  EXPECT_EQ(to->weights().size(), from->weights().size());
  int64_t compared = 0;
  for (const WeightInfo& weight : from->weights()) {
    if (weight.name.find("experts.") == std::string::npos) continue;
    const WeightInfo* found = to->find(weight.name);
    ASSERT_NE(found, nullptr) << weight.name;
    EXPECT_EQ(read_all(*to, *found), read_all(*from, weight)) << weight.name;
    compared++;
  }
  EXPECT_EQ(compared, 2 * 6 * 3);
  EXPECT_EQ(to->find("layers.1.experts.5.up")->source_name, "blk.1.ffn_up_exps.weight");
}

TEST_F(FamiliesGguf, StacksThatDoNotFitAreNamed) {
  const std::string up = "blk.1.ffn_up_exps.weight";
  const auto with = [&](const std::function<void(Stored&)>& edit) {
    return error_of("olmoe", "olmoe", [&](GgufWriter&, Tensors& tensors) { edit(tensors[up]); });
  };
  EXPECT_EQ(with([](Stored&) {}), "no error");
  EXPECT_THAT(with([](Stored& s) {
                s.shape[0] = 7;
                s.data.resize(s.data.size() / 8 * 7);
              }),
              HasSubstr("'" + up +
                        "' has shape [7, 24, 64]; by the model's settings it should "
                        "have [8, 24, 64]"));
  EXPECT_THAT(with([](Stored& s) { s.shape = {8 * 24, 64}; }), HasSubstr("shape [192, 64]"));
  EXPECT_THAT(with([](Stored& s) { s.shape = {8, 64, 24}; }), HasSubstr("shape [8, 64, 24]"));
  EXPECT_THAT(error_of("olmoe", "olmoe", [&](GgufWriter&, Tensors& t) { t.erase(up); }),
              HasSubstr("'" + up + "' is missing"));
  EXPECT_THAT(error_of("olmoe", "olmoe",
                       [&](GgufWriter&, Tensors& t) {
                         t["blk.0.ffn_gate.weight"] = t["blk.0.attn_q.weight"];
                       }),
              HasSubstr("'blk.0.ffn_gate.weight' is no part of a model of family 'olmoe'"));
}

TEST_F(FamiliesGguf, RefusesWhatItCannotCompute) {
  const auto deepseek = [&](const char* key, uint32_t value) {
    return error_of("deepseek2", "deepseek_v2_lite", [&](GgufWriter& w, Tensors&) {
      if (std::string_view(key) != "kv") w.add_u32("deepseek2.attention.kv_lora_rank", 32);
      w.add_u32("deepseek2.leading_dense_block_count", 1);
      w.add_u32("deepseek2.expert_shared_count", 2);
      w.add_u32(concat("deepseek2.", key), value);
    });
  };
  EXPECT_EQ(deepseek("x", 1), "no error");
  EXPECT_THAT(deepseek("attention.key_length_mla", 24), HasSubstr("value_length_mla' is missing"));
  EXPECT_THAT(error_of("deepseek2", "deepseek_v3",
                       [&](GgufWriter& w, Tensors& tensors) {
                         const auto from = open(kModels + "deepseek_v3");
                         add_deepseek(from->config(), w);
                         w.add_f64("deepseek2.rope.scaling.yarn_log_multiplier", 0.1);
                         split_kv_up(from->config(), DType::f32, tensors);
                         tensors["blk.1.attn_v_b.weight"].shape = {4, 32, 12};
                       }),
              HasSubstr("'blk.1.attn_v_b.weight' has shape [4, 32, 12]"));
  EXPECT_THAT(deepseek("expert_gating_func", 3), HasSubstr("'expert_gating_func' is 3"));
  EXPECT_THAT(deepseek("expert_group_count", 3), HasSubstr("8 experts in 3 groups"));
  EXPECT_THAT(deepseek("kv", 1), HasSubstr("'attention.kv_lora_rank' is missing"));
  EXPECT_THAT(error_of("olmoe", "olmoe",
                       [](GgufWriter& w, Tensors&) { w.add_f32("olmoe.attention.clamp_kqv", 8); }),
              HasSubstr("clamp_kqv"));
  EXPECT_THAT(error_of("qwen2", "qwen2",
                       [](GgufWriter& w, Tensors&) {
                         w.add_f32("qwen2.rope.scaling.yarn_attn_factor", 2);
                       }),
              HasSubstr("yarn_attn_factor"));
  EXPECT_THAT(error_of("qwen2moe", "qwen2_moe",
                       [](GgufWriter& w, Tensors&) {
                         w.add_u32("qwen2moe.expert_shared_feed_forward_length", 1u << 30);
                       }),
              HasSubstr("'expert_shared_feed_forward_length' is 1073741824"));
}

}  // namespace
}  // namespace cohort
