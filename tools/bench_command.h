// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace CLI {
class App;
}

namespace cohort {

// cohort bench kernels, cohort bench model.
void add_bench_command(CLI::App& app, int& exit_code);

}  // namespace cohort
