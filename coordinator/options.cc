// SPDX-License-Identifier: Apache-2.0
#include "coordinator/options.h"

#include <CLI/CLI.hpp>
#include <filesystem>

namespace cohort {

std::variant<CoordinatorOptions, int> parse_options(int argc, char** argv) {
  CoordinatorOptions o;
  ServiceOptions& s = o.service;
  double replica_wait = seconds(s.replica_wait), stall = seconds(s.replicas.stall);
  CLI::App app("Takes requests over HTTP and gRPC and hands them to the replicas that connect");
  app.add_option("--model", o.model_path, "Checkpoint; only its metadata is read")->required();
  app.add_option("--served-model-name", o.served_name, "What clients call the model");
  app.add_option("--http", o.http, "HOST:PORT of the OpenAI HTTP API")->capture_default_str();
  app.add_option("--grpc", o.grpc, "HOST:PORT of the gRPC API")->capture_default_str();
  app.add_option("--session", o.session, "HOST:PORT where replicas connect")->capture_default_str();
  app.add_option("--http-threads", o.http_threads, "Threads for HTTP")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--max-queue", s.admission.queued_sequences, "Sequences that may wait")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  app.add_option("--max-queued-tokens", s.admission.queued_tokens, "Prompt tokens that may wait")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
      ->capture_default_str();
  app.add_option("--max-per-user", s.admission.tenant_sequences, "Open sequences of one user")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  app.add_option("--replica-wait", replica_wait, "Seconds to wait for a replica when none is there")
      ->check(CLI::Range(0.0, 86400.0))
      ->capture_default_str();
  app.add_option("--stall-seconds", stall, "Without progress for so long, a rank is stuck")
      ->check(CLI::Range(0.1, 3600.0))
      ->capture_default_str();
  app.add_option("--drain-seconds", o.drain_seconds, "For open requests when told to stop")
      ->check(CLI::Range(0.0, 86400.0))
      ->capture_default_str();
  app.add_flag("--die-with-parent", o.die_with_parent, "Stop when the parent process ends");
  app.add_option("--log-level", o.log_level)
      ->check(CLI::IsMember({"debug", "info", "warning", "error"}))
      ->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e);
  }
  s.replica_wait =
      std::chrono::duration_cast<Duration>(std::chrono::duration<double>(replica_wait));
  s.replicas.stall = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(stall));
  if (o.served_name.empty()) {
    std::filesystem::path path(o.model_path);
    if (!path.has_filename()) path = path.parent_path();
    o.served_name = path.extension() == ".gguf" || path.extension() == ".safetensors"
                        ? path.stem().string()
                        : path.filename().string();
  }
  return o;
}

}  // namespace cohort
