// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace CLI {
class App;
}

namespace cohort {

// cohort doctor: what this host offers, and what would stop a cluster from starting.
void add_doctor_command(CLI::App& app, int& exit_code);

}  // namespace cohort
