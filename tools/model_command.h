// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace CLI {
class App;
}

namespace cohort {

// `cohort model`: what is in a checkpoint.
void add_model_command(CLI::App& app, int& exit_code);

}  // namespace cohort
