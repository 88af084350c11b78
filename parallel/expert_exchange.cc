// SPDX-License-Identifier: Apache-2.0
#include "parallel/expert_exchange_local.h"
#include "parallel/expert_exchange_spread.h"

namespace cohort {

std::unique_ptr<ExpertExchange> make_expert_exchange(Stream& stream, Group dp,
                                                     const ExchangeShape& shape) {
  if (dp.size() == 1) return std::make_unique<LocalExchange>(stream, shape);
  return std::make_unique<SpreadExchange>(stream, dp, shape);
}

}  // namespace cohort
