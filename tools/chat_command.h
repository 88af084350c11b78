// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace CLI {
class App;
}

namespace cohort {

// `cohort chat`: a streaming conversation in the terminal, or one question with --once.
void add_chat_command(CLI::App& app, int& exit_code);

}  // namespace cohort
