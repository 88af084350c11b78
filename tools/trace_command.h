// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace CLI {
class App;
}

namespace cohort {

// `cohort trace`: what ranks wrote with --trace, to look at in ui.perfetto.dev.
void add_trace_command(CLI::App& app, int& exit_code);

}  // namespace cohort
