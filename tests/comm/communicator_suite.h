// SPDX-License-Identifier: Apache-2.0
// What every communicator must do, whatever carries it. Each check is run by all ranks of a world.
#pragma once
#include <span>

#include "comm/communicator.h"

namespace cohort {

struct CommunicatorCheck {
  const char* name;
  void (*run)(World& world);
};
std::span<const CommunicatorCheck> communicator_checks();

}  // namespace cohort
