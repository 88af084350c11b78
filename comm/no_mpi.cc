// SPDX-License-Identifier: Apache-2.0
// In place of mpi.cc where no MPI library is installed.
#include "comm/communicator.h"

namespace cohort {

Result<std::unique_ptr<World>> make_mpi_world(CommunicatorKind, const std::string&) {
  return unimplemented("this build has no MPI: install an MPI library and configure again");
}

}  // namespace cohort
