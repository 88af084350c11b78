// SPDX-License-Identifier: Apache-2.0
#include "base/check.h"
#include "parallel/expert_exchange_local.h"

namespace cohort {

std::unique_ptr<ExpertExchange> make_expert_exchange(Stream& stream, Group dp,
                                                     const ExchangeShape& shape) {
  COHORT_CHECK_EQ(dp.size(), 1);
  return std::make_unique<LocalExchange>(stream, shape);
}

}  // namespace cohort
