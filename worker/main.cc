// SPDX-License-Identifier: Apache-2.0
// cohort-worker: one rank of a replica. Exit status: 0 done, 64 wrong command line, 70 a rank
// failed (any; the log of the leader names it), 71 the leader was lost.
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string_view>
#include <thread>
#include <utility>

#include "base/log.h"
#include "worker/bounded_end.h"
#include "worker/end_signals.h"
#include "worker/leader_process.h"
#include "worker/options.h"
#include "worker/rank.h"
#include "worker/rank_loop.h"

namespace cohort {
namespace {

// A failed rank must not wait for peers that hang: no destructors, no MPI_Finalize.
void end_now(int code) { ::_exit(code); }

// A rank other than the leader ends when the leader says so. It was told too: should the leader say
// nothing, it ends all the same.
void end_after_signal() {
  std::thread([] {
    wait_for_end_signal();
    bound_the_end(end_now);
  }).detach();
}

// mpirun tells a process its rank, so that even the first lines of the log have it.
std::string log_name(const std::string& replica) {
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  return rank == nullptr ? replica : replica + " rank " + rank;
}

// Whether mpirun has started this process and no other. Such a rank has nobody to talk to, and need
// not wait until MPI has looked at all devices and networks.
bool started_alone() {
  const char* size = std::getenv("OMPI_COMM_WORLD_SIZE");
  return size != nullptr && std::string_view(size) == "1";
}

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

Result<std::unique_ptr<World>> make_world(const WorkerOptions& options) {
  if (options.replica.layout.ranks() == 1 && started_alone())
    return std::move(make_local_hosts({host_name()})[0]);
  auto world = make_mpi_world(options.communicator);
  // A build without MPI still serves models that one process can hold.
  if (!world.ok() && world.status().code() == Code::kUnimplemented &&
      options.replica.layout.ranks() == 1)
    return std::move(make_local_worlds(1)[0]);
  return world;
}

int follow(World& world, Control& control, const WorkerOptions& options) {
  auto rank = Rank::load(world, options.replica, [](int64_t, int64_t) {});
  if (!rank.ok()) {
    log_error("this rank ends: " + rank.status().to_string());
    return load_exit_code(rank.status());
  }
  return run_rank_loop(**rank, *control.link, end_now);
}

int run(const WorkerOptions& options) {
  auto loading = std::make_unique<EndOnSignal>(end_now);
  auto world = make_world(options);
  if (!world.ok()) {
    log_error(world.status().to_string());
    return kExitRankFailed;
  }
  const int rank = (*world)->rank();
  if (rank != 0) {
    loading.reset();
    end_after_signal();
  }
  auto control = connect_ranks(**world, options);
  if (!control.ok()) {
    log_error(control.status().to_string());
    return kExitRankFailed;
  }
  const int code = rank == 0 ? lead(**world, *control, options, end_now, std::move(loading))
                             : follow(**world, *control, options);
  if (code != kExitDone) end_now(code);
  // What is left is to leave MPI together: bounded, like everything.
  bound_the_end(end_now);
  control->hub.reset();
  control->link.reset();
  world->reset();
  return code;
}

}  // namespace
}  // namespace cohort

int main(int argc, char** argv) {
  using namespace cohort;
  // mpirun's daemon is our parent: without it nobody would ever end us.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  block_end_signals();
  const auto options = parse_worker_options(argc, argv);
  if (const int* code = std::get_if<int>(&options)) return *code;
  const auto& worker = std::get<WorkerOptions>(options);
  configure_log(log_name(worker.name), worker.log_level);
  const int code = run(worker);
  if (code != kExitDone) end_now(code);
  return code;
}
