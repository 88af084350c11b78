// SPDX-License-Identifier: Apache-2.0
// One line per event on standard error, with time, level and the name that the process gave
// itself ("replica-0 rank 1"). The sink is spdlog where it is installed (log_spdlog.cc), plain
// stderr elsewhere (log_stderr.cc); CMake links one of them. Any thread may log.
#pragma once
#include <string>

namespace cohort {

enum class LogLevel { debug, info, warning, error };

// Called once, before threads start. name is printed on every line.
void configure_log(const std::string& name, LogLevel least);
// "debug", "info", "warning", "error"; anything else: info.
LogLevel parse_log_level(const std::string& text);

void log(LogLevel level, const std::string& message);
inline void log_debug(const std::string& message) { log(LogLevel::debug, message); }
inline void log_info(const std::string& message) { log(LogLevel::info, message); }
inline void log_warning(const std::string& message) { log(LogLevel::warning, message); }
inline void log_error(const std::string& message) { log(LogLevel::error, message); }

}  // namespace cohort
