// SPDX-License-Identifier: Apache-2.0
// Rows whose logits lie on several ranks give the tokens and log-probabilities of whole rows, bit
// for bit, and few bytes travel for it.
#include "parallel/parted_sampler.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/failure.h"
#include "kernels/ops.h"
#include "tests/support/local_ranks.h"

namespace cohort {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int64_t kVocab = 4999;

struct Row {
  std::string name;
  SamplingParams params;
  std::vector<float> logits;
  std::vector<int32_t> prompt = {1, 4, 2600, 4998}, output = {7, 2600, 7, 300};
  bool tokens_known = true;

  SampleRow sample_row() const { return {&params, prompt, output}; }
};

std::vector<float> random_logits(uint32_t seed, float spread) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> logits(static_cast<size_t>(kVocab));
  for (float& x : logits) x = normal(random);
  return logits;
}

Row row_with(std::string name, const std::function<void(SamplingParams&)>& set, float spread = 2) {
  static uint32_t seed = 1;
  Row row{.name = std::move(name), .params = {}, .logits = random_logits(++seed, spread)};
  row.params.seed = seed;
  set(row.params);
  return row;
}

void greedy(SamplingParams& p) { p.temperature = 0; }

std::vector<Row> plain_rows() {
  return {row_with("greedy", greedy),
          row_with("drawn", [](auto&) {}),
          row_with("hot", [](auto& p) { p.temperature = 30; }),
          row_with("top_k 1", [](auto& p) { p.top_k = 1; }),
          row_with("top_k 40", [](auto& p) { p.top_k = 40; }),
          row_with("top_k 40, top_p", [](auto& p) { p.top_k = 40, p.top_p = 0.7f; }),
          row_with("top_k 3000", [](auto& p) { p.top_k = 3000, p.temperature = 5; }),
          row_with("top_k of all", [](auto& p) { p.top_k = int32_t(kVocab); }),
          row_with("top_p", [](auto& p) { p.top_p = 0.5f; }),
          row_with("top_p 0", [](auto& p) { p.top_p = 0; }),
          row_with(
              "top_p of a wide set", [](auto& p) { p.top_p = 0.9f; }, 0.1f),
          row_with("min_p", [](auto& p) { p.min_p = 0.05f; }),
          row_with("min_p 1", [](auto& p) { p.min_p = 1; }),
          row_with("min_p, top_p", [](auto& p) { p.min_p = 0.01f, p.top_p = 0.9f; }),
          row_with("min_p, top_k", [](auto& p) { p.min_p = 0.2f, p.top_k = 100; })};
}

std::vector<Row> adjusted_rows() {
  const auto penalties = [](SamplingParams& p) {
    p.repetition_penalty = 1.7f;
    p.frequency_penalty = 0.4f;
    p.presence_penalty = 0.2f;
  };
  std::vector<Row> rows = {
      row_with("bias",
               [](auto& p) {
                 p.logit_bias = {{2600, 30.0f}, {-1, 5}, {1 << 20, 5}};
               }),
      row_with("penalties", penalties),
      row_with("greedy, min_tokens",
               [](auto& p) {
                 p.temperature = 0, p.min_tokens = 100, p.end_tokens = {3, 4000};
               }),
      row_with("penalties, top_k", [&](auto& p) { penalties(p), p.top_k = 20; })};
  rows[2].logits[4000] = 100;  // it would be taken
  rows.push_back(row_with("bias that leaves a part nothing", [](SamplingParams& p) {
    for (int32_t token = 0; token < 3000; token++) p.logit_bias.push_back({token, -kInfinity});
  }));
  rows.push_back(row_with("penalties of unknown tokens", penalties));
  rows.back().tokens_known = false;
  return rows;
}

std::vector<Row> odd_rows() {
  std::vector<Row> rows;
  for (float bad : {std::numeric_limits<float>::quiet_NaN(), kInfinity})
    for (size_t at : {size_t(10), size_t(kVocab - 1)}) {
      rows.push_back(row_with(concat(bad, " at ", at), [](auto& p) { p.logprobs = 3; }));
      rows.back().logits[at] = bad;
    }
  rows.push_back(row_with("nothing", [](auto&) {}));
  rows.back().logits.assign(size_t(kVocab), -kInfinity);
  rows.push_back(row_with("one", [](auto& p) { p.top_p = 0.5f; }));
  rows.back().logits.assign(size_t(kVocab), -kInfinity);
  rows.back().logits[4321] = -7;
  rows.push_back(row_with("equal", greedy));
  rows.back().logits.assign(size_t(kVocab), 1.5f);
  rows.push_back(row_with("equal, top_k", [](auto& p) { p.top_k = 300; }));
  rows.back().logits.assign(size_t(kVocab), 1.5f);
  rows.push_back(row_with("a bias that is infinite", [](auto& p) {
    p.logit_bias = {{4000, kInfinity}};
  }));
  return rows;
}

// Each row without and with log-probabilities.
std::vector<Row> all_rows() {
  std::vector<Row> rows;
  for (std::vector<Row>& some : std::vector{plain_rows(), adjusted_rows(), odd_rows()})
    for (Row& row : some)
      for (int logprobs : {-1, 0, 5, 2000}) {
        rows.push_back(row);
        if (logprobs >= 0) rows.back().params.logprobs = logprobs;
        rows.back().name += concat(", logprobs ", logprobs);
      }
  return rows;
}

SampledToken sample_whole(const Row& row) {
  Stream stream(1, Isa::portable);
  std::vector<float> logits = row.logits;
  SampledToken token;
  const SampleRow one = row.sample_row();
  ops::sample(stream, {&token, 1}, Tensor(logits.data(), DType::f32, {1, kVocab}), {&one, 1});
  return token;
}

bool same(const SampledToken& a, const SampledToken& b) {
  const auto same_top = [](const TokenLogprob& x, const TokenLogprob& y) {
    return x.token == y.token && std::memcmp(&x.logprob, &y.logprob, sizeof x.logprob) == 0;
  };
  return a.token == b.token && a.finite == b.finite &&
         std::memcmp(&a.logprob, &b.logprob, sizeof a.logprob) == 0 &&
         std::equal(a.top.begin(), a.top.end(), b.top.begin(), b.top.end(), same_top);
}

// This rank's columns of all rows.
std::vector<float> columns(const std::vector<Row>& rows, const Slice& part) {
  std::vector<float> logits;
  for (const Row& row : rows)
    logits.insert(logits.end(), row.logits.begin() + part.begin, row.logits.begin() + part.end);
  return logits;
}

// The tokens of rank `sampler`; bytes: what it received.
std::vector<SampledToken> sample_parted(const std::vector<Row>& rows,
                                        const std::vector<Slice>& parts, int threads,
                                        int64_t* bytes = nullptr) {
  const int sampler = int(parts.size()) - 1;
  std::vector<SampledToken> result;
  run_local_ranks(int(parts.size()), [&](World& world) {
    std::vector<int> everyone;
    for (int r = 0; r < world.size(); r++) everyone.push_back(r);
    const auto comm = world.group(everyone, "tp").value();
    Group group(*comm);
    Stream stream(threads, world.rank() % 2 == 0 ? detect_isa() : Isa::portable);
    const bool samples = world.rank() == sampler;
    PartedSampler parted(parts, int64_t(rows.size()), group, samples);
    std::vector<float> logits = columns(rows, parts[size_t(world.rank())]);
    std::vector<PartedRow> parted_rows;
    for (const Row& row : rows) {
      PartedRow one{row.sample_row(), row.output.size(), row.tokens_known};
      if (!row.tokens_known && !samples) one.row.output = {};
      parted_rows.push_back(one);
    }
    for (int turn = 0; turn < 2; turn++) {  // nothing is left of the first
      std::vector<SampledToken> out(rows.size());
      const auto n = int64_t(rows.size()), width = parts[size_t(world.rank())].size();
      const Tensor mine(logits.data(), DType::f32, {n, width});
      Task task = parted.sample(stream, mine, parted_rows, out);
      task.start();
      task.result();
      if (samples && bytes != nullptr) *bytes = comm->traffic().received_within / (turn + 1);
      if (samples) result = std::move(out);
    }
  });
  return result;
}

TEST(PartedSampler, EveryLayoutGivesTheBitsOfWholeRows) {
  const std::vector<Row> rows = all_rows();
  std::vector<SampledToken> expected;
  for (const Row& row : rows) expected.push_back(sample_whole(row));
  const std::vector<std::vector<Slice>> layouts = {
      {{0, 2560}, {2560, kVocab}},           {{0, 256}, {256, kVocab}},
      {{0, 4864}, {4864, kVocab}},           {{0, 1024}, {1024, 3840}, {3840, kVocab}},
      {{0, 16}, {16, 4000}, {4000, kVocab}},  // blocks that lie on two ranks
  };
  for (size_t l = 0; l < layouts.size(); l++) {
    const auto tokens = sample_parted(rows, layouts[l], 1 + int(l % 2));
    ASSERT_EQ(tokens.size(), rows.size());
    for (size_t i = 0; i < rows.size(); i++)
      EXPECT_TRUE(same(tokens[i], expected[i]))
          << "layout " << l << ", " << rows[i].name << ": " << tokens[i].token << " against "
          << expected[i].token;
  }
}

TEST(PartedSampler, FewBytesTravel) {
  const std::vector<Slice> parts = {{0, 2560}, {2560, kVocab}};
  const auto received = [&](Row row) {
    int64_t bytes = 0;
    sample_parted({row}, parts, 1, &bytes);
    return bytes;
  };
  EXPECT_LE(received(row_with("greedy", greedy)), 64);
  EXPECT_LE(received(row_with("top_k", [](auto& p) { p.top_k = 40; })), 64 + 40 * 12);
  EXPECT_LE(received(row_with("drawn", [](auto&) {})), 64 + 10 * 4);
  EXPECT_LE(received(row_with("logprobs", [](auto& p) { p.top_k = 1, p.logprobs = 5; })),
            64 + 6 * 12 + 10 * 4);
  // All logits of the other rank, which is what it is spared elsewhere.
  EXPECT_GE(received(row_with("top_k 3000", [](auto& p) { p.top_k = 3000; })), 2560 * 4);
}

}  // namespace
}  // namespace cohort
