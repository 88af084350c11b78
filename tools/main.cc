// SPDX-License-Identifier: Apache-2.0
// The `cohort` command: what a person types.
#include <CLI/CLI.hpp>

#include "tools/chat_command.h"
#include "tools/host_daemon.h"
#include "tools/model_command.h"
#include "tools/template_command.h"
#include "tools/tokenize_command.h"
#include "tools/trace_command.h"
#include "tools/up_command.h"

int main(int argc, char** argv) {
  CLI::App app(
      "Cohort serves large language models on a cluster of processes that share each model.\n\n"
      "Start here:\n"
      "  cohort up --tp 2                        fetch a small model, shard it over two ranks, "
      "serve\n"
      "  cohort chat                             talk to it, in another terminal\n"
      "  cohort model --model model.gguf         what is in a checkpoint\n"
      "Each command explains itself: cohort COMMAND --help",
      "cohort");
  app.set_version_flag("--version", COHORT_VERSION);
  app.require_subcommand(1);
  int exit_code = 0;
  cohort::add_up_command(app, exit_code);
  cohort::add_chat_command(app, exit_code);
  cohort::add_model_command(app, exit_code);
  cohort::add_tokenize_command(app, exit_code);
  cohort::add_template_command(app, exit_code);
  cohort::add_trace_command(app, exit_code);
  cohort::add_host_daemon_command(app, exit_code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 1;
  }
  return exit_code;
}
