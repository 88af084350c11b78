// SPDX-License-Identifier: Apache-2.0
#include "parallel/expert_exchange_local.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/ops.h"

namespace cohort {

LocalExchange::LocalExchange(Stream& stream, const ExchangeShape& shape)
    : stream_(&stream), shape_(shape) {
  Device& device = stream.device();
  const int64_t pairs = shape.max_rows * shape.per_token;
  offsets_ = device.allocate(size_t(bytes_of(DType::i32, shape.most_held + 1)));
  rows_ = device.allocate(size_t(bytes_of(DType::i32, pairs)));
  places_ = device.allocate(size_t(bytes_of(DType::i32, pairs)));
  x_ = device.allocate(size_t(bytes_of(stream.activations(), max_rows() * shape.hidden)));
}

int64_t LocalExchange::max_rows() const {
  return shape_.max_rows * std::min(shape_.per_token, shape_.most_held);
}

void LocalExchange::upload_local(const std::vector<int32_t>& local) {
  if (local == local_) return;
  const size_t bytes = local.size() * sizeof(int32_t);
  if (device_local_.size() < bytes) device_local_ = stream_->device().allocate(bytes);
  stream_->device().upload(device_local_.data(), local.data(), bytes);
  local_ = local;
}

int64_t LocalExchange::rows_of_x(int64_t tokens, int held) const {
  if (stream_->kind() == DeviceKind::cpu) return offsets_.as<int32_t>()[held];
  return tokens * std::min(shape_.per_token, held);
}

Task LocalExchange::dispatch(Route& route, const ExpertPlacement& placement, Tensor h,
                             Tensor experts, std::span<const int64_t> group_rows,
                             FunctionRef<void()> meanwhile) {
  const int64_t tokens = h.dim(0), k = experts.dim(1);
  const int held = int(placement.held(0).size());
  COHORT_CHECK_EQ(placement.ranks(), 1);
  COHORT_CHECK(group_rows.size() == 1 && group_rows[0] == tokens);
  COHORT_CHECK_LE(tokens, shape_.max_rows);
  COHORT_CHECK_EQ(k, shape_.per_token);
  COHORT_CHECK_EQ(h.dim(1), shape_.hidden);
  COHORT_CHECK_LE(held, shape_.most_held);
  upload_local(placement.local(0));

  const Tensor local(device_local_.data(), DType::i32, {placement.experts()});
  const Tensor rows(rows_.data(), DType::i32, {tokens * k});
  route.offsets = Tensor(offsets_.data(), DType::i32, {held + 1});
  route.places = Tensor(places_.data(), DType::i32, {tokens, k});
  ops::group_tokens(*stream_, route.offsets, rows, route.places, experts, local);

  const int64_t n = rows_of_x(tokens, held);
  const Tensor taken(rows_.data(), DType::i32, {n});
  COHORT_CHECK_LE(n, max_rows());  // no expert twice
  route.x = Tensor(x_.data(), h.dtype(), {n, shape_.hidden});
  ops::take_rows(*stream_, route.x, h, taken);
  route.outputs = Tensor();
  meanwhile();
  co_return;
}

Task LocalExchange::combine(Route& route, Tensor y) {
  COHORT_CHECK_EQ(y.dim(0), route.x.dim(0));
  route.outputs = y;
  co_return;
}

}  // namespace cohort
