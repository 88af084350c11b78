// SPDX-License-Identifier: Apache-2.0
#include "worker/weight_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "kernels/matrix.h"
#include "worker/weight_store.h"

namespace cohort::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class WeightCacheTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "cohort-cache-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
    path_ = (folder_ / "weights").string();
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::vector<CachedPart> parts() const {
    return {{"a", DType::q4_1, 40, 64, 0},
            {"b", DType::f16, 17, 33, 0},
            {"empty", DType::q8_0, 0, 64, 0},
            {"c", DType::q6_k, 300, 2048, 0},
            {"d", DType::bf16, 1, 1, 0}};
  }
  // Contents as unlike as any.
  std::vector<std::vector<std::byte>> contents(uint32_t seed = 1) const {
    std::mt19937 random(seed);
    std::vector<std::vector<std::byte>> all;
    for (const CachedPart& p : parts()) {
      all.emplace_back(size_t(packed_bytes(p.dtype, p.rows, p.columns)));
      for (std::byte& b : all.back()) b = std::byte(random());
    }
    return all;
  }
  Status write(const std::string& identity = "me", uint32_t seed = 1) const {
    const auto all = contents(seed);
    std::vector<const std::byte*> data;
    for (const auto& one : all) data.push_back(one.data());
    return write_weight_cache(path_, identity, parts(), data);
  }
  Status read(const std::string& identity = "me") const {
    auto file = WeightCacheFile::open(path_, identity);
    if (!file.ok()) return file.status();
    ThreadPool threads(2);
    return (*file)->read(threads).status();
  }
  std::string bytes() const {
    std::ifstream in(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void replace(const std::string& bytes) const {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << bytes;
  }
  size_t files() const {
    return size_t(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }

  fs::path folder_;
  std::string path_;
};

TEST_F(WeightCacheTest, GivesBackWhatWasWritten) {
  ASSERT_TRUE(write().ok());
  EXPECT_EQ(files(), 1u);
  const auto file = WeightCacheFile::open(path_, "me");
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  const std::vector<CachedPart>& found = (*file)->header().parts;
  ASSERT_EQ(found.size(), parts().size());
  const auto expected = contents();
  for (int n : {1, 3}) {
    ThreadPool threads(n);
    const auto content = (*file)->read(threads);
    ASSERT_TRUE(content.ok()) << content.status().to_string();
    for (size_t i = 0; i < found.size(); i++) {
      EXPECT_EQ(found[i].name, parts()[i].name);
      EXPECT_EQ(found[i].offset % kCacheAlignment, 0u);
      if (expected[i].empty()) continue;
      EXPECT_EQ(0, std::memcmp(content->data() + found[i].offset, expected[i].data(),
                               expected[i].size()));
    }
  }
}

TEST_F(WeightCacheTest, AChangedBitIsNoticedWhereverItIs) {
  ASSERT_TRUE(write().ok());
  const std::string good = bytes();
  const uint64_t content =
      fs::file_size(path_) - (*WeightCacheFile::open(path_, "me"))->header().content_bytes;
  std::mt19937 random(2);
  std::vector<size_t> places{0, 8, 12, 16, 23, 24, good.size() - 1, size_t(content)};
  for (int i = 0; i < 40; i++) places.push_back(random() % 600);
  for (int i = 0; i < 40; i++) places.push_back(content + random() % (good.size() - content));
  const size_t header_end = 24 + [&] {
    uint32_t size;
    std::memcpy(&size, good.data() + 12, 4);
    return size_t(size);
  }();
  for (const size_t place : places) {
    if (place >= header_end && place < content) continue;  // zeros that nobody reads
    std::string bad = good;
    bad[place] = char(bad[place] ^ (1 << random() % 8));
    replace(bad);
    EXPECT_FALSE(read().ok()) << place;
  }
  replace(good);
  EXPECT_TRUE(read().ok());
}

TEST_F(WeightCacheTest, WhatIsCutLongerForeignOrOlderIsNotUsed) {
  EXPECT_EQ(read().code(), Code::kNotFound);
  ASSERT_TRUE(write().ok());
  const std::string good = bytes();
  for (const size_t size :
       {size_t(0), size_t(7), size_t(23), size_t(24), size_t(200), size_t(4096), good.size() - 1}) {
    replace(good.substr(0, size));
    EXPECT_EQ(read().code(), Code::kDataLoss) << size;
  }
  replace(good + "x");
  EXPECT_THAT(read().message(), HasSubstr("another size"));
  replace(good);
  EXPECT_THAT(read("somebody else").message(), HasSubstr("something else"));
  std::string older = good;
  older[8] = char(kWeightCacheVersion + 1);
  replace(older);
  EXPECT_THAT(read().message(), HasSubstr("version"));
  fs::remove(path_);
  fs::create_directory(path_);
  EXPECT_FALSE(read().ok());
}

TEST_F(WeightCacheTest, AFailedWriteLeavesNothing) {
  fs::create_directory(path_);  // cannot be replaced by a file
  EXPECT_FALSE(write().ok());
  EXPECT_EQ(files(), 1u);
  path_ = (folder_ / "missing" / "weights").string();
  EXPECT_FALSE(write().ok());
}

// Writers of the same file, and readers meanwhile: what is there is always whole.
TEST_F(WeightCacheTest, ManyMayWriteAtOnce) {
  ASSERT_TRUE(write().ok());
  std::vector<std::thread> threads;
  std::atomic<int> bad{0};
  for (int i = 0; i < 4; i++)
    threads.emplace_back([&, i] {
      for (int n = 0; n < 10; n++)
        bad += i % 2 == 0 ? !write("me", uint32_t(i)).ok() : !read().ok();
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(bad, 0);
  EXPECT_EQ(files(), 1u);
}

TEST(WeightCacheSum, DependsOnEveryByteTheirOrderAndTheirNumber) {
  std::vector<std::byte> data(200);
  std::mt19937 random(3);
  for (std::byte& b : data) b = std::byte(random());
  for (size_t size : {0u, 1u, 7u, 8u, 63u, 64u, 65u, 128u, 200u}) {
    const std::span<std::byte> some(data.data(), size);
    const uint64_t sum = cache_sum(some);
    for (std::byte& b : some)
      for (int bit = 0; bit < 8; bit++) {
        b ^= std::byte(1 << bit);
        EXPECT_NE(cache_sum(some), sum);
        b ^= std::byte(1 << bit);
      }
    for (size_t i = 1; i < size; i++) {
      if (some[i] == some[0]) continue;
      std::swap(some[0], some[i]);
      EXPECT_NE(cache_sum(some), sum) << i;
      std::swap(some[0], some[i]);
    }
  }
  const std::vector<std::byte> zeros(100);
  EXPECT_NE(cache_sum({zeros.data(), 64}), cache_sum({zeros.data(), 65}));
}

// What does not fit encode()'s rules is refused even with sums that are right.
TEST(WeightCacheHeader, ImpossibleOnesAreRefused) {
  const CacheHeader good{
      .identity = "x",
      .content_bytes = 2 * 1024 * 64,
      .parts = {{"a", DType::f32, 16, 1024, 0}, {"b", DType::f32, 16, 1024, 1024 * 64}},
      .sums = {7}};
  const auto same = decode_cache_header(encode(good));
  ASSERT_TRUE(same.ok()) << same.status().to_string();
  EXPECT_EQ(*same, good);
  const std::vector<std::function<void(CacheHeader&)>> changes = {
      [](CacheHeader& h) { h.content_bytes++; },
      [](CacheHeader& h) { h.content_bytes = ~uint64_t(0); },
      [](CacheHeader& h) { h.sums.push_back(1); },
      [](CacheHeader& h) { h.sums.clear(); },
      [](CacheHeader& h) { h.parts[0].dtype = DType(99); },
      [](CacheHeader& h) { h.parts[0].dtype = DType::i32; },
      [](CacheHeader& h) { h.parts[0].rows = -1; },
      [](CacheHeader& h) { h.parts[0].rows = int64_t(1) << 60; },
      [](CacheHeader& h) { h.parts[0].columns = int64_t(1) << 60; },
      [](CacheHeader& h) {
        h.parts[1].dtype = DType::q4_k;
        h.parts[1].columns = 100;
      },
      [](CacheHeader& h) { h.parts[1].offset = 0; },
      [](CacheHeader& h) { h.parts[1].offset += 64; },
      [](CacheHeader& h) { h.parts.pop_back(); },
  };
  for (size_t i = 0; i < changes.size(); i++) {
    CacheHeader bad = good;
    changes[i](bad);
    EXPECT_EQ(decode_cache_header(encode(bad)).status().code(), Code::kDataLoss) << i;
  }
}

// A matrix that was placed before comes out of the file, byte for byte, without being read again.
TEST_F(WeightCacheTest, AStoreTakesFromTheFileWhatItPlacedBefore) {
  Stream stream(2, Isa::portable);
  std::atomic<int> reads{0};
  const auto read = [&](int64_t begin, int64_t end, std::byte* out) -> Status {
    reads++;
    for (int64_t i = begin * 100; i < end * 100; i++) out[i - begin * 100] = std::byte(i * 7);
    return {};
  };
  const auto fill = [&](WeightStore& store, std::vector<std::string> names) {
    Matrix m(50, 0);
    std::vector<Matrix::PartSource> sources;
    for (const std::string& name : names) sources.push_back({name, DType::f16, 37, read});
    EXPECT_TRUE(m.add_parts(stream, sources, &store).ok());
    return m;
  };
  const auto same = [](const Matrix& a, const Matrix& b) {
    if (a.parts().size() != b.parts().size()) return false;
    for (size_t i = 0; i < a.parts().size(); i++)
      if (std::memcmp(a.parts()[i].packed.data(), b.parts()[i].packed.data(),
                      a.parts()[i].packed.size()) != 0)
        return false;
    return true;
  };
  WeightStore first(path_, "me", stream.threads());
  const Matrix fresh = fill(first, {"a", "b", "c"});
  first.save();
  EXPECT_GT(reads.exchange(0), 0);

  WeightStore second(path_, "me", stream.threads());
  EXPECT_TRUE(same(fill(second, {"a", "b", "c"}), fresh));
  EXPECT_EQ(reads, 0);
  EXPECT_EQ(second.cached_bytes(), second.bytes());
  const auto written = fs::last_write_time(path_);
  second.save();
  EXPECT_EQ(fs::last_write_time(path_), written);

  // Another order of the loader, and fewer matrices, are noticed, and mended by the next save.
  WeightStore third(path_, "me", stream.threads());
  EXPECT_TRUE(same(fill(third, {"a", "c", "b"}), fresh));
  EXPECT_GT(reads.exchange(0), 0);
  third.save();
  WeightStore fourth(path_, "me", stream.threads());
  EXPECT_TRUE(same(fill(fourth, {"a", "c", "b"}), fresh));
  EXPECT_EQ(reads, 0);

  // A damaged file is made anew.
  std::string bad = bytes();
  bad.back() = char(~bad.back());
  replace(bad);
  WeightStore fifth(path_, "me", stream.threads());
  EXPECT_TRUE(same(fill(fifth, {"a", "c", "b"}), fresh));
  EXPECT_EQ(fifth.cached_bytes(), 0);
  fifth.save();
  EXPECT_TRUE(this->read().ok());
}

TEST_F(WeightCacheTest, FoldersAndNamesFollowTheModel) {
  EXPECT_EQ(weight_cache_folder("off", "/m/x.gguf"), "");
  EXPECT_EQ(weight_cache_folder("", "/m/x.gguf"), "");
  EXPECT_EQ(weight_cache_folder("/somewhere", "/m/x.gguf"), "/somewhere");
  const std::string model = (folder_ / "x.gguf").string();
  EXPECT_EQ(weight_cache_folder("auto", model), folder_.string());
  EXPECT_EQ(weight_cache_folder("auto", folder_.string()), folder_.string());
  const std::string path = weight_cache_path("/c", "/m/x.gguf", "me");
  EXPECT_THAT(path, HasSubstr("/c/x.gguf."));
  EXPECT_NE(path, weight_cache_path("/c", "/m/x.gguf", "you"));
  EXPECT_THAT(weight_cache_path("/c", "/m/folder/", "me"), HasSubstr("/c/folder."));
}

TEST_F(WeightCacheTest, TheStampChangesWithTheFiles) {
  const std::string model = (folder_ / "model.safetensors").string();
  std::ofstream(model) << "one";
  const std::string file = files_stamp(model), folder = files_stamp(folder_.string());
  EXPECT_EQ(files_stamp(folder_.string()), folder);
  fs::last_write_time(model, fs::last_write_time(model) + std::chrono::seconds(1));
  EXPECT_NE(files_stamp(model), file);
  EXPECT_NE(files_stamp(folder_.string()), folder);
}

}  // namespace
}  // namespace cohort::testing
