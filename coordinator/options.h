// SPDX-License-Identifier: Apache-2.0
// The command line of cohort-coordinator.
#pragma once
#include <optional>
#include <string>
#include <variant>

#include "base/log.h"
#include "coordinator/request_service.h"

namespace cohort {

struct CoordinatorOptions {
  std::string model_path;
  std::string served_name;  // "" until resolved: the last part of the path
  std::string http = "127.0.0.1:8000";
  std::string grpc = "127.0.0.1:9000";
  std::string session = "127.0.0.1:0";
  int http_threads = 2;
  double drain_seconds = 30;
  bool die_with_parent = false;
  std::string log_level = "info";
  ServiceOptions service;
};

// The options, or the exit status of a process that has said all it had to say.
std::variant<CoordinatorOptions, int> parse_options(int argc, char** argv);

}  // namespace cohort
