// SPDX-License-Identifier: Apache-2.0
#include "comm/communicator.h"

namespace cohort {

Status Communicator::all_to_all(const void*, std::span<const int64_t>, void*,
                                std::span<const int64_t>) {
  return unimplemented(concat(name(), " has no all-to-all"));
}

Status Communicator::add_up(const void*, void*, int64_t, DType) {
  return unimplemented(name() + " adds in tree order only");
}

}  // namespace cohort
