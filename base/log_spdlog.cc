// SPDX-License-Identifier: Apache-2.0
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include "base/log.h"

namespace cohort {
namespace {

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::debug:
      return spdlog::level::debug;
    case LogLevel::info:
      return spdlog::level::info;
    case LogLevel::warning:
      return spdlog::level::warn;
    case LogLevel::error:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

}  // namespace

void configure_log(const std::string& name, LogLevel least) {
  auto logger = spdlog::stderr_logger_mt(name);
  logger->set_pattern("%Y-%m-%d %H:%M:%S.%e %^%l%$ [%n] %v");
  logger->set_level(to_spdlog(least));
  spdlog::set_default_logger(logger);
}

void log(LogLevel level, const std::string& message) {
  spdlog::default_logger_raw()->log(to_spdlog(level), "{}", message);
}

}  // namespace cohort
