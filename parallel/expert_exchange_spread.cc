// SPDX-License-Identifier: Apache-2.0
#include "parallel/expert_exchange_spread.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/check.h"
#include "base/failure.h"
#include "parallel/expert_exchange_traffic.h"

namespace cohort {
namespace {

constexpr int64_t kWord = 4;  // bytes of an f32 or i32

Buffer words(int64_t count) { return Buffer(size_t(count * kWord)); }

int64_t sum(const std::vector<int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), int64_t{0});
}

void put(float* words, int64_t i, int32_t value) { std::memcpy(words + i, &value, kWord); }

int32_t get(const float* words, int64_t i) {
  int32_t value;
  std::memcpy(&value, words + i, kWord);
  return value;
}

}  // namespace

SpreadExchange::SpreadExchange(Stream& stream, Group dp, const ExchangeShape& shape)
    : stream_(&stream), dp_(dp), shape_(shape), own_(size_t(dp.rank())) {
  COHORT_CHECK(stream.kind() == DeviceKind::cpu);
  COHORT_CHECK_GE(shape.few_rows, 0);
  const size_t ranks = size_t(dp.size());
  for (Counts* counts : {&group_rows_, &most_, &needed_, &pairs_, &pairs_for_, &slots_out_,
                         &slots_in_, &outputs_out_, &outputs_in_, &first_slot_, &first_output_,
                         &begun_, &listed_, &placed_, &last_, &to_bytes_, &from_bytes_})
    counts->resize(ranks);
  asked_.resize(ranks);
  told_.resize(ranks);
  const int64_t others = int64_t(ranks) - 1, most = most_per_token();
  chosen_.resize(size_t(shape.max_rows * shape.per_token));
  next_.resize(size_t(shape.most_held));
  here_.reserve(size_t(max_rows()));
  copies_.reserve(std::max(max_rows(), others * shape.max_rows));

  const int64_t slots = others * shape.max_rows * slot_words(shape.hidden, most);
  out_ = words(slots);
  in_ = words(slots);
  x_ = words(max_rows() * shape.hidden);
  back_ = words(others * shape.max_rows * most * shape.hidden);
  const int64_t few = std::min(shape.few_rows, shape.max_rows);
  const int64_t returned = std::max(shape.max_rows * shape.per_token, int64_t(ranks) * few * most);
  outputs_ = words(returned * shape.hidden);
  offsets_ = words(shape.most_held + 1);
  places_ = words(shape.max_rows * shape.per_token);
}

int64_t SpreadExchange::max_rows() const {
  return int64_t(ranks()) * shape_.max_rows * most_per_token();
}

void SpreadExchange::begin(const ExpertPlacement& placement, const Tensor& h, const Tensor& experts,
                           std::span<const int64_t> group_rows) {
  COHORT_CHECK(placement.ranks() == int(ranks()) && group_rows.size() == ranks());
  COHORT_CHECK_EQ(h.dim(0), group_rows[own_]);
  COHORT_CHECK_EQ(experts.dim(0), h.dim(0));
  COHORT_CHECK_EQ(h.dim(1), shape_.hidden);
  COHORT_CHECK_EQ(experts.dim(1), shape_.per_token);
  COHORT_CHECK(h.dtype() == DType::f32 && experts.dtype() == DType::i32);
  for (size_t r = 0; r < ranks(); r++) {
    COHORT_CHECK_LE(group_rows[r], shape_.max_rows);
    COHORT_CHECK_LE(int(placement.held(int(r)).size()), shape_.most_held);
    group_rows_[r] = group_rows[r];
    most_[r] = most_pairs(placement, int(r), shape_.per_token);
  }
  dispatched_ = false;
  all_ = sends_all(shape_, group_rows);
  quiet_ = sum(group_rows_) == 0;
  tokens_ = h.dim(0);
  held_ = int64_t(placement.held(int(own_)).size());
}

// Tokens and pairs of this group by the rank that computes them.
void SpreadExchange::choose_ranks(const ExpertPlacement& placement, const Tensor& experts) {
  std::fill(needed_.begin(), needed_.end(), 0);
  std::fill(pairs_.begin(), pairs_.end(), 0);
  std::fill(last_.begin(), last_.end(), -1);
  for (int64_t token = 0; token < tokens_; token++)
    for (int64_t j = 0; j < shape_.per_token; j++) {
      const int64_t pair = token * shape_.per_token + j;
      const int rank = placement.place(experts.i32()[pair], int(own_), token);
      chosen_[size_t(pair)] = rank;
      if (rank < 0) continue;
      needed_[size_t(rank)] += last_[size_t(rank)] != token;
      last_[size_t(rank)] = token;
      pairs_[size_t(rank)]++;
    }
}

void SpreadExchange::size_messages_out() {
  int64_t slot = 0, output = 0;
  for (size_t r = 0; r < ranks(); r++) {
    const bool other = r != own_;
    const int64_t width = slot_words(shape_.hidden, most_[r]);
    slots_out_[r] = other ? (all_ ? (most_[r] > 0 ? tokens_ : 0) : needed_[r]) : 0;
    outputs_in_[r] = other ? (all_ ? tokens_ * most_[r] : pairs_[r]) : 0;
    first_slot_[r] = slot;
    first_output_[r] = output;
    asked_[r] = int32_t(slots_out_[r]);
    slot += slots_out_[r] * width;
    output += outputs_in_[r];
  }
  first_output_[own_] = output;
}

// The slot of a token in the message to a rank; begins one where the token has none yet.
float* SpreadExchange::slot_of(size_t rank, int64_t token, const float* row) {
  const int64_t width = slot_words(shape_.hidden, most_[rank]);
  float* message = out_.as<float>() + first_slot_[rank];
  if (last_[rank] != token) {
    last_[rank] = token;
    listed_[rank] = 0;
    float* slot = message + begun_[rank]++ * width;
    copies_.add(row, slot);
    for (int64_t i = 0; i < most_[rank]; i++) put(slot + shape_.hidden, i, -1);
  }
  return message + (begun_[rank] - 1) * width;
}

void SpreadExchange::write_slots(const ExpertPlacement& placement, const Tensor& h,
                                 const Tensor& experts) {
  std::fill(last_.begin(), last_.end(), -1);
  std::fill(begun_.begin(), begun_.end(), 0);
  std::fill(placed_.begin(), placed_.end(), 0);
  here_.clear();
  for (int64_t pair = 0; pair < tokens_ * shape_.per_token; pair++) {
    const int64_t token = pair / shape_.per_token;
    int32_t& place = places_.as<int32_t>()[pair];
    place = -1;
    if (chosen_[size_t(pair)] < 0) continue;
    const size_t rank = size_t(chosen_[size_t(pair)]);
    place = int32_t(first_output_[rank] + placed_[rank]++);
    const float* row = h.f32() + token * shape_.hidden;
    const int32_t local = placement.local(int(rank))[size_t(experts.i32()[pair])];
    if (rank == own_) {
      here_.push_back({row, local, 0});
      continue;
    }
    float* slot = slot_of(rank, token, row);
    COHORT_CHECK_LT(listed_[rank], most_[rank]);  // no expert twice
    put(slot + shape_.hidden, listed_[rank]++, local);
  }
  end_lists();
}

// Slots that are sent and not needed have empty lists.
void SpreadExchange::end_lists() {
  for (size_t r = 0; r < ranks(); r++)
    for (int64_t i = begun_[r]; i < slots_out_[r]; i++) {
      const int64_t width = slot_words(shape_.hidden, most_[r]);
      put(out_.as<float>() + first_slot_[r] + i * width, shape_.hidden, -1);
    }
}

void SpreadExchange::size_messages_in() {
  for (size_t r = 0; r < ranks(); r++) {
    slots_in_[r] = all_ ? (most_[own_] > 0 ? group_rows_[r] : 0) : told_[r];
    if (r == own_) slots_in_[r] = 0;
    if (slots_in_[r] < 0 || slots_in_[r] > group_rows_[r])
      throw Failure(
          internal_error(concat("dispatch: dp rank ", r, " sends ", slots_in_[r], " rows of ",
                                group_rows_[r], ": the ranks do not run the same plan")));
    to_bytes_[r] = slots_out_[r] * slot_words(shape_.hidden, most_[r]) * kWord;
    from_bytes_[r] = slots_in_[r] * slot_words(shape_.hidden, most_[own_]) * kWord;
  }
}

void SpreadExchange::read_list(const float* slot, size_t from) {
  for (int64_t i = 0; i < most_[own_]; i++) {
    const int32_t local = get(slot + shape_.hidden, i);
    if (local == -1) return;
    if (local < 0 || local >= held_)
      throw Failure(internal_error(concat("dispatch: dp rank ", from, " asks for expert ", local,
                                          " of ", held_, ": the ranks do not agree on copies")));
    here_.push_back({slot, local, 0});
    pairs_for_[from]++;
  }
}

void SpreadExchange::read_slots() {
  const float* slot = in_.as<float>();
  for (size_t r = 0; r < ranks(); r++) {
    pairs_for_[r] = r == own_ ? pairs_[r] : 0;
    for (int64_t i = 0; i < slots_in_[r]; i++, slot += slot_words(shape_.hidden, most_[own_]))
      read_list(slot, r);
    outputs_out_[r] = r == own_ ? 0 : all_ ? group_rows_[r] * most_[own_] : pairs_for_[r];
  }
}

// x: the rows of here_, sorted by expert.
void SpreadExchange::sort_pairs(Route& route) {
  int32_t* offsets = offsets_.as<int32_t>();
  std::fill_n(offsets, held_ + 1, 0);
  for (const Pair& pair : here_) offsets[pair.local + 1]++;
  for (int64_t e = 0; e < held_; e++) {
    next_[size_t(e)] = offsets[e];
    offsets[e + 1] += offsets[e];
  }
  for (Pair& pair : here_) {
    pair.at = next_[size_t(pair.local)]++;
    copies_.add(pair.row, x_.as<float>() + pair.at * shape_.hidden);
  }
  copies_.run(stream_->threads(), shape_.hidden);
  route.x = Tensor(x_.data(), DType::f32, {int64_t(here_.size()), shape_.hidden});
  route.offsets = Tensor(offsets, DType::i32, {held_ + 1});
}

void SpreadExchange::account(const ExpertPlacement& placement) {
  const ExchangeTraffic bytes =
      exchange_traffic(placement, shape_, int(own_),
                       {.group_rows = group_rows_, .rows_to = needed_, .pairs_for = pairs_for_});
  traffic_.sent += bytes.sent;
  traffic_.fixed += bytes.fixed;
  traffic_.exact += bytes.exact;
  traffic_.minimum += bytes.minimum;
}

Task SpreadExchange::dispatch(Route& route, const ExpertPlacement& placement, Tensor h,
                              Tensor experts, std::span<const int64_t> group_rows,
                              FunctionRef<void()> meanwhile) {
  begin(placement, h, experts, group_rows);
  choose_ranks(placement, experts);
  size_messages_out();
  write_slots(placement, h, experts);
  if (all_) {
    copies_.run(stream_->threads(), shape_.hidden);
  } else {
    std::fill(to_bytes_.begin(), to_bytes_.end(), kWord);
    const Tensor counts(asked_.data(), DType::i32, {int64_t(ranks())});
    const auto told = dp_.all_to_all(counts, to_bytes_, told_.data(), to_bytes_);
    copies_.run(stream_->threads(), shape_.hidden);
    co_await told;
  }
  size_messages_in();
  if (!quiet_) {
    const Tensor out(out_.data(), DType::f32, {sum(to_bytes_) / kWord});
    const auto sent = dp_.all_to_all(out, to_bytes_, in_.data(), from_bytes_);
    meanwhile();
    co_await sent;
  } else {
    meanwhile();
  }
  read_slots();
  sort_pairs(route);
  account(placement);
  route.outputs = Tensor();
  route.places = Tensor(places_.data(), DType::i32, {tokens_, shape_.per_token});
  dispatched_ = true;
}

// Outputs for others, in the order of their slots.
void SpreadExchange::write_outputs(const float* y) {
  float* message = back_.as<float>();
  size_t pair = size_t(pairs_[own_]);  // own ones come first
  for (size_t r = 0; r < ranks(); r++) {
    for (int64_t i = 0; r != own_ && i < pairs_for_[r]; i++, pair++)
      copies_.add(y + here_[pair].at * shape_.hidden, message + i * shape_.hidden);
    message += outputs_out_[r] * shape_.hidden;
    to_bytes_[r] = outputs_out_[r] * shape_.hidden * kWord;
    from_bytes_[r] = outputs_in_[r] * shape_.hidden * kWord;
  }
  copies_.run(stream_->threads(), shape_.hidden);
}

// Own outputs, behind those that come.
void SpreadExchange::keep_outputs(const float* y) {
  float* row = outputs_.as<float>() + first_output_[own_] * shape_.hidden;
  for (int64_t i = 0; i < pairs_[own_]; i++, row += shape_.hidden)
    copies_.add(y + here_[size_t(i)].at * shape_.hidden, row);
  copies_.run(stream_->threads(), shape_.hidden);
}

Task SpreadExchange::combine(Route& route, Tensor y) {
  COHORT_CHECK(dispatched_ && y.dtype() == DType::f32);
  COHORT_CHECK_EQ(y.dim(0), int64_t(here_.size()));
  COHORT_CHECK_EQ(y.dim(1), shape_.hidden);
  dispatched_ = false;
  if (!quiet_) {
    write_outputs(y.f32());
    const Tensor back(back_.data(), DType::f32, {sum(outputs_out_), shape_.hidden});
    const auto arrived = dp_.all_to_all(back, to_bytes_, outputs_.data(), from_bytes_);
    keep_outputs(y.f32());
    co_await arrived;
  }
  const int64_t m = first_output_[own_] + pairs_[own_];
  route.outputs = Tensor(outputs_.data(), DType::f32, {m, shape_.hidden});
}

}  // namespace cohort
