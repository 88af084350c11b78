// SPDX-License-Identifier: Apache-2.0
// The exchange of a rank that has all experts of its column: rows are sorted by expert, and nothing
// moves. Only ops, so that it works on any device: sizes follow from the number of tokens, never
// from what was chosen, which the host of a GPU does not know.
#pragma once
#include "parallel/experts.h"

namespace cohort {

class LocalExchange : public ExpertExchange {
 public:
  LocalExchange(Stream& stream, const ExchangeShape& shape);

  Task dispatch(Route& route, const ExpertPlacement& placement, Tensor h, Tensor experts,
                std::span<const int64_t> group_rows, FunctionRef<void()> meanwhile) override;
  Task combine(Route& route, Tensor y) override;
  int64_t max_rows() const override;

 private:
  void upload_local(const std::vector<int32_t>& local);
  // Rows of x for so many tokens: pairs that there can be; on the CPU, those that there are.
  int64_t rows_of_x(int64_t tokens, int held) const;

  Stream* stream_;
  ExchangeShape shape_;
  // In the device's memory. offsets i32 [most_held + 1]; rows, places i32 [max_rows * per_token];
  // x A [max_rows(), hidden].
  Buffer offsets_, rows_, places_, x_;
  Buffer device_local_;         // i32 [experts]: what it holds is
  std::vector<int32_t> local_;  // this, uploaded when it differs from the placement's
};

}  // namespace cohort
