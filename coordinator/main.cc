// SPDX-License-Identifier: Apache-2.0
// cohort-coordinator: the one address that clients know. What `cohort up` needs to know it prints
// on standard output, one line each:
//   listening http=HOST:PORT grpc=HOST:PORT session=HOST:PORT
//   replica NAME STATE tp=.. pp=.. ranks=.. [problem="..."]
// SIGTERM and SIGINT: nobody new, open streams may end until the drain limit, exit 0.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <mutex>

#include <sys/prctl.h>

#include "base/log.h"
#include "coordinator/address.h"
#include "coordinator/options.h"
#include "coordinator/server.h"
#include "model/checkpoint.h"

namespace cohort {
namespace {

Result<std::shared_ptr<const ServedModel>> load_model(const CoordinatorOptions& options) {
  COHORT_ASSIGN_OR_RETURN(const auto checkpoint, Checkpoint::open(options.model_path));
  auto model = std::make_shared<ServedModel>();
  COHORT_ASSIGN_OR_RETURN(auto tokenizer, checkpoint->tokenizer());
  model->tokenizer = std::move(tokenizer);
  model->name = options.served_name;
  model->created = std::time(nullptr);
  model->max_context = static_cast<int>(checkpoint->config().context);
  if (const auto& source = model->tokenizer->chat_template()) {
    auto parsed = ChatTemplate::parse(*source);
    if (parsed.ok())
      model->chat_template = *std::move(parsed);
    else
      log_warning("chats will be refused, the chat template cannot be used: " +
                  parsed.status().to_string());
  }
  return std::shared_ptr<const ServedModel>(std::move(model));
}

// The host as it was asked for, the port as it turned out.
std::string with_port(const std::string& address, int port) {
  return address.substr(0, address.rfind(':') + 1) + std::to_string(port);
}

void print_line(const std::string& line) {
  std::fputs((line + "\n").c_str(), stdout);
  std::fflush(stdout);
}

// Blocks until a signal to stop comes; meanwhile keeps the health service up to date.
void serve_until(const sigset_t& signals, Server& server) {
  const timespec period{0, 200'000'000};
  while (sigtimedwait(&signals, nullptr, &period) < 0) server.update_health();
}

int run(const CoordinatorOptions& options) {
  configure_log("coordinator", parse_log_level(options.log_level));
  // Before any thread exists, so that all inherit the mask and only serve_until() sees them.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  // What matters of gRPC's own messages comes as statuses, which we report in our words.
  setenv("GRPC_VERBOSITY", "NONE", 0);
  if (options.die_with_parent) prctl(PR_SET_PDEATHSIG, SIGTERM);
  auto model = load_model(options);
  if (!model.ok()) {
    log_error(model.status().message());
    return 1;
  }
  const ServerOptions server_options{.http = options.http,
                                     .grpc = options.grpc,
                                     .session = options.session,
                                     .http_threads = options.http_threads,
                                     .http_limits = {},
                                     .service = options.service};
  auto server = Server::start(*model, server_options, print_line);
  if (!server.ok()) {
    log_error(server.status().message());
    return 1;
  }
  Server& running = **server;
  print_line("listening http=" + with_port(options.http, running.http_port()) +
             " grpc=" + with_port(options.grpc, running.grpc_port()) +
             " session=" + with_port(options.session, running.session_port()));
  serve_until(signals, running);
  log_info("stopping: nobody new is let in, open requests may end");
  running.stop(
      std::chrono::duration_cast<Duration>(std::chrono::duration<double>(options.drain_seconds)));
  return 0;
}

}  // namespace
}  // namespace cohort

int main(int argc, char** argv) {
  auto options = cohort::parse_options(argc, argv);
  if (const int* status = std::get_if<int>(&options)) return *status;
  return cohort::run(std::get<cohort::CoordinatorOptions>(options));
}
