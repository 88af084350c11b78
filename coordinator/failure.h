// SPDX-License-Identifier: Apache-2.0
// Why a request got no (full) answer, in the terms of both fronts. A plain value.
#pragma once
#include <optional>
#include <string>

#include "base/status.h"

namespace cohort {

struct Failure {
  Code code = Code::kInternal;
  std::string message;
  std::string param;               // the field at fault, as the client wrote it; may be empty
  std::optional<int> retry_after;  // seconds
  // Trying again would fail the same way, although the status alone suggests otherwise.
  bool retry_is_pointless = false;
};

inline Failure invalid_request(std::string message, std::string param = {}) {
  return {Code::kInvalidArgument, std::move(message), std::move(param), {}, true};
}

}  // namespace cohort
