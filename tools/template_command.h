// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace CLI {
class App;
}

namespace cohort {

// `cohort template`: chat messages to the prompt that a model sees, with its own template.
void add_template_command(CLI::App& app, int& exit_code);

}  // namespace cohort
