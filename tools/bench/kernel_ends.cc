// SPDX-License-Identifier: Apache-2.0
// The end of a step, from logits to a token, and the sum that ends each half of a layer on two
// ranks.
#include <random>
#include <thread>

#include "comm/communicator.h"
#include "kernels/ops.h"
#include "tools/bench/kernel_case.h"
#include "tools/bench/layer_shape.h"

namespace cohort::bench {
namespace {

struct Draw {
  const char* name;
  float temperature;
  int32_t top_k;
  float top_p;
};
constexpr Draw kDraws[] = {{"greedy", 0, 0, 1},
                           {"temperature", 0.8f, 0, 1},
                           {"top_k 40", 0.8f, 40, 1},
                           {"top_p 0.95", 0.8f, 0, 0.95f}};

struct Logits {
  Logits(Stream& s, const Draw& draw, int64_t vocab) : stream(s), values(size_t(vocab)) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal(0, 3);
    for (float& value : values) value = normal(random);
    params.temperature = draw.temperature;
    params.top_k = draw.top_k;
    params.top_p = draw.top_p;
  }
  void sample() {
    const SampleRow row{&params, {}, {}};
    ops::sample(stream, {&token, 1}, Tensor(values.data(), DType::f32, {1, int64_t(values.size())}),
                {&row, 1});
  }

  Stream& stream;
  std::vector<float> values;
  SamplingParams params;
  SampledToken token;
};

CaseGroup sampling(const CaseSetting& setting, const LayerShape& shape, const Draw& draw) {
  const std::string name = concat("sample ", draw.name, " vocab ", shape.vocab);
  return {{name}, [&stream = setting.stream, name, draw, vocab = shape.vocab] {
            const auto logits = std::make_shared<Logits>(stream, draw, vocab);
            return std::vector<KernelCase>{
                {name, {.cache_bytes = 4.0 * double(vocab)}, [logits] { logits->sample(); }}};
          }};
}

// Two ranks as threads of this process: rank 0 is the caller, the other one answers it.
class TwoRanks {
 public:
  explicit TwoRanks(int64_t count) : count_(count), plan_(2, {{0, 1}, {1, 2}}) {
    const auto worlds = make_local_worlds(2);
    for (size_t r = 0; r < 2; r++) {
      auto made = worlds[r]->group({0, 1}, "tp");
      COHORT_CHECK_MSG(made.ok(), made.status().to_string());
      ends_[r] = std::move(*made);
      pieces_[r].assign(size_t(count), 1.0f);
      sums_[r].resize(size_t(count));
    }
    ends_[1]->set_timeout(std::chrono::hours(1));
    other_ = std::thread([this] {
      while (reduce(1).ok()) {
      }
    });
  }
  ~TwoRanks() {
    ends_[1]->abort(cancelled("the measurement is over"));
    other_.join();
  }

  void reduce() {
    const Status reduced = reduce(0);
    COHORT_CHECK_MSG(reduced.ok(), reduced.to_string());
  }

 private:
  Status reduce(size_t rank) {
    return ends_[rank]->all_reduce(plan_, pieces_[rank].data(), sums_[rank].data(), count_);
  }

  const int64_t count_;
  const TreePlan plan_;
  std::unique_ptr<Communicator> ends_[2];
  std::vector<float> pieces_[2], sums_[2];
  std::thread other_;
};

// Each of two ranks writes its vector, reads both and writes the sum.
CaseGroup reduction(const LayerShape& shape, int64_t rows) {
  const int64_t count = rows * shape.hidden;
  const std::string name = concat("all_reduce 2 ranks ", shape.name, " rows ", rows);
  return {{name}, [name, count] {
            const auto ranks = std::make_shared<TwoRanks>(count);
            return std::vector<KernelCase>{
                {name, {.cache_bytes = 2 * 4 * 4.0 * double(count)}, [ranks] { ranks->reduce(); }}};
          }};
}

}  // namespace

std::vector<CaseGroup> end_cases(const CaseSetting& setting) {
  std::vector<CaseGroup> groups;
  for (const LayerShape& shape : kLayerShapes)
    for (const Draw& draw : kDraws) groups.push_back(sampling(setting, shape, draw));
  for (const LayerShape& shape : kLayerShapes)
    for (const int64_t rows : {1, 8, 128}) groups.push_back(reduction(shape, rows));
  return groups;
}

}  // namespace cohort::bench
