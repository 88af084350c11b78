// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace CLI {
class App;
}

namespace cohort {

// `cohort up`: a coordinator and one supervised mpirun per replica in one terminal.
void add_up_command(CLI::App& app, int& exit_code);

}  // namespace cohort
