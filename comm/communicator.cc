// SPDX-License-Identifier: Apache-2.0
#include "comm/communicator.h"

namespace cohort {

Status Communicator::add_up(const void*, void*, int64_t, DType) {
  return unimplemented(name() + " adds in tree order only");
}

}  // namespace cohort
