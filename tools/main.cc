// SPDX-License-Identifier: Apache-2.0
// The `cohort` command: what a person types.
#include <CLI/CLI.hpp>

#include "base/isa_option.h"
#include "tools/bench_command.h"
#include "tools/chat_command.h"
#include "tools/doctor_command.h"
#include "tools/host_daemon.h"
#include "tools/model_command.h"
#include "tools/template_command.h"
#include "tools/tokenize_command.h"
#include "tools/trace_command.h"
#include "tools/up_command.h"

namespace {

// --version, and with --verbose what decides how fast ranks of this host are.
std::string version(bool verbose) {
  if (!verbose) return COHORT_VERSION;
  const auto isa = cohort::choose_isa("");
  return cohort::concat(COHORT_VERSION, "\ninstruction set: ",
                        isa.ok() ? std::string(name(*isa)) : isa.status().message());
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Cohort serves large language models on a cluster of processes that share each model.\n\n"
      "Start here:\n"
      "  cohort up --tp 2                        fetch a small model, shard it over two ranks, "
      "serve\n"
      "  cohort chat                             talk to it, in another terminal\n"
      "  cohort model --model model.gguf         what is in a checkpoint\n"
      "  cohort doctor                           whether this host is fit for a cluster\n"
      "Each command explains itself: cohort COMMAND --help",
      "cohort");
  const CLI::Option* verbose =
      app.add_flag("--verbose")->description("With --version: the instruction set, too");
  app.set_version_flag("--version", [verbose] { return version(verbose->count() > 0); });
  app.require_subcommand(1);
  int exit_code = 0;
  cohort::add_up_command(app, exit_code);
  cohort::add_chat_command(app, exit_code);
  cohort::add_model_command(app, exit_code);
  cohort::add_tokenize_command(app, exit_code);
  cohort::add_template_command(app, exit_code);
  cohort::add_trace_command(app, exit_code);
  cohort::add_bench_command(app, exit_code);
  cohort::add_doctor_command(app, exit_code);
  cohort::add_host_daemon_command(app, exit_code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 1;
  }
  return exit_code;
}
