// SPDX-License-Identifier: Apache-2.0
// Weights out of the cache on disk are those that are packed afresh, byte for byte, for every kind
// of model and every shard.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "comm/communicator.h"
#include "parallel/units.h"
#include "tests/support/spawn_ranks.h"
#include "worker/weights.h"

namespace cohort::testing {
namespace {

namespace fs = std::filesystem;

void append(std::string& all, const Matrix& m) {
  for (const MatrixPart& part : m.parts())
    all.append(part.packed.as<const char>(), part.packed.size());
}

void append(std::string& all, const MatrixGroup& group) {
  for (const Matrix& m : group.matrices) append(all, m);
}

std::string packed(const Weights& w) {
  std::string all;
  append(all, *w.embedding);
  append(all, *w.head);
  for (const LayerWeights& layer : w.layers) {
    for (const Matrix* m : {&layer.qkv, &layer.o, &layer.ffn.gate_up, &layer.ffn.down})
      append(all, *m);
    if (const LatentWeights* l = layer.latent.get()) {
      for (const Matrix* m : {&l->q_down, &l->q_up, &l->kv_down}) append(all, *m);
      append(all, l->key_up);
      append(all, l->value_up);
    }
    if (const ExpertWeights* e = layer.experts.get()) {
      for (const Matrix* m : {&e->router, &e->shared.gate_up, &e->shared.down, &e->shared_gate})
        append(all, *m);
      append(all, e->gate_up);
      append(all, e->down);
    }
  }
  return all;
}

class CachedLoadTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "cohort-load-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    cache_ = name;
    checkpoint_ = require_ok(Checkpoint::open(std::string("tests/data/tiny_models/") + GetParam()));
  }
  void TearDown() override { fs::remove_all(cache_); }

  // Of tensor-parallel rank `rank` of two.
  std::unique_ptr<Weights> load(int rank, int threads, const std::string& cache) const {
    Layout layout;
    layout.tp = 2;
    const Partition p = require_ok(partition(shape_of(*checkpoint_), layout));
    const size_t r = size_t(rank);
    const WeightShard shard{.units = p.units,
                            .attention = p.attention[r],
                            .ffn = p.ffn[r],
                            .shared_ffn = p.shared_ffn[r],
                            .vocab = p.vocab[r],
                            .experts = p.experts[r],
                            .layers = p.layers[0]};
    Stream stream(threads, Isa::portable);
    const auto worlds = make_local_worlds(1);
    const auto alone = require_ok(worlds[0]->group({0}, "pp"));
    return require_ok(load_weights(*checkpoint_, shard, stream, *alone, {}, cache));
  }
  std::vector<fs::path> files() const {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(cache_)) found.push_back(entry.path());
    return found;
  }

  std::string cache_;
  std::unique_ptr<Checkpoint> checkpoint_;
};

TEST_P(CachedLoadTest, GivesTheSameBytes) {
  for (int rank : {0, 1}) {
    const std::string fresh = packed(*load(rank, 1, ""));
    ASSERT_FALSE(fresh.empty());
    const auto writing = load(rank, 3, cache_);
    EXPECT_EQ(writing->store->cached_bytes(), 0);
    EXPECT_TRUE(packed(*writing) == fresh);
    const auto cached = load(rank, 2, cache_);
    EXPECT_EQ(cached->store->cached_bytes(), cached->packed_bytes());
    EXPECT_TRUE(packed(*cached) == fresh);
  }
  EXPECT_EQ(files().size(), 2u);  // one of each shard
}

TEST_P(CachedLoadTest, ADamagedFileIsPackedAnew) {
  const std::string fresh = packed(*load(0, 1, cache_));
  const fs::path file = files().at(0);
  for (const uintmax_t at : {uintmax_t(30), fs::file_size(file) / 2, fs::file_size(file) - 1}) {
    std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekg(std::streamoff(at));
    const char other = char(bytes.get() ^ 4);
    bytes.seekp(std::streamoff(at));
    bytes.put(other);
    bytes.close();
    const auto mended = load(0, 2, cache_);
    EXPECT_EQ(mended->store->cached_bytes(), 0) << at;
    EXPECT_TRUE(packed(*mended) == fresh) << at;
    EXPECT_EQ(load(0, 2, cache_)->store->cached_bytes(), mended->packed_bytes()) << at;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, CachedLoadTest,
                         ::testing::Values("qwen3", "mixtral", "deepseek_v3"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace cohort::testing
