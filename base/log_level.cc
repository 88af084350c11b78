// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

namespace cohort {

LogLevel parse_log_level(const std::string& text) {
  if (text == "debug") return LogLevel::debug;
  if (text == "warning") return LogLevel::warning;
  if (text == "error") return LogLevel::error;
  return LogLevel::info;
}

}  // namespace cohort
