// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace CLI {
class App;
}

namespace cohort {

// `cohort tokenize`: text to token ids and back, with a model's own tokenizer.
void add_tokenize_command(CLI::App& app, int& exit_code);

}  // namespace cohort
