// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <cstdio>
#include <ctime>

#include "base/log.h"

namespace cohort {
namespace {

// The sink of the whole process, like spdlog's default logger in the other file.
std::string& process_name() {
  static std::string name = "cohort";
  return name;
}
std::atomic<LogLevel>& least_level() {
  static std::atomic<LogLevel> level = LogLevel::info;
  return level;
}

}  // namespace

void configure_log(const std::string& name, LogLevel least) {
  process_name() = name;
  least_level() = least;
}

void log(LogLevel level, const std::string& message) {
  if (level < least_level()) return;
  static constexpr const char* kNames[] = {"debug", "info", "warning", "error"};
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  tm parts{};
  gmtime_r(&now.tv_sec, &parts);
  char time[32];
  std::strftime(time, sizeof time, "%Y-%m-%d %H:%M:%S", &parts);
  std::fprintf(stderr, "%s.%03ld %s [%s] %s\n", time, now.tv_nsec / 1000000,
               kNames[static_cast<int>(level)], process_name().c_str(), message.c_str());
}

}  // namespace cohort
