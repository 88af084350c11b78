// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace CLI {
class App;
}

namespace cohort {

// `cohort host-daemon`: what `cohort up --hosts` has mpirun start on each other host in place of
// MPI's daemon, which becomes its child. It holds a line with heartbeats to `cohort up` and ends
// MPI's daemon, and with it the ranks, when that line breaks. Not for people: hidden from the help.
void add_host_daemon_command(CLI::App& app, int& exit_code);

}  // namespace cohort
