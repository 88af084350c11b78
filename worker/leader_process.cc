// SPDX-License-Identifier: Apache-2.0
#include "worker/leader_process.h"

#include <algorithm>
#include <iostream>
#include <random>

#include "base/log.h"
#include "worker/bounded_end.h"
#include "worker/leader/batch_loop.h"
#include "worker/leader/session.h"
#include "worker/rank.h"
#include "worker/rank_group.h"
#include "worker/split_model.h"

namespace cohort {
namespace {

uint64_t random_epoch() {
  std::random_device device;
  return uint64_t(device()) << 32 | device();
}

std::string device_name(const ReplicaOptions& options) {
  if (options.gpu.device == DeviceKind::cuda) return "cuda";
  return concat("cpu ", name(options.isa), ", ", options.threads,
                options.threads == 1 ? " thread" : " threads");
}

// What two replicas of a deployment must have in common to give the same tokens.
std::string arithmetic_fingerprint(const Rank& rank) {
  return concat(rank.fingerprint(), ", ", rank.arithmetic());
}

void print_line(const std::string& line) { std::cout << line << std::endl; }

// Once per hundredth: a supervisor wants to show it, not to store it.
class ProgressPrinter {
 public:
  void operator()(int64_t done, int64_t total) {
    const int hundredths = total == 0 ? 100 : static_cast<int>(100 * done / total);
    if (hundredths == printed_) return;
    printed_ = hundredths;
    print_line(concat("progress ", hundredths / 100.0));
  }

 private:
  int printed_ = -1;
};

// Until there is a reason to end: OK if we were told to.
Status serve(const BatchLoop& loop, const RankGroup& group, const Session& session) {
  constexpr Duration kSoon = std::chrono::milliseconds(5), kLater = std::chrono::milliseconds(100);
  for (bool announced = false; !told_to_end(announced ? kLater : kSoon);) {
    COHORT_RETURN_IF_ERROR(group.failure());
    COHORT_RETURN_IF_ERROR(session.rejected());
    if (loop.ended()) return Status::ok_status();  // wait() tells why
    if (!announced && session.connected()) print_line("serving");
    announced = announced || session.connected();
  }
  log_info("told to end");
  return Status::ok_status();
}

ReplicaDescription describe(const Rank& rank, const WorkerOptions& options, uint64_t epoch) {
  return {.name = options.name,
          .epoch = epoch,
          .model_fingerprint = arithmetic_fingerprint(rank),
          .model_path = options.replica.model,
          .tp = options.replica.layout.tp,
          .pp = options.replica.layout.pp,
          .shares = options.replica.layout.shares,
          .limits = rank.limits()};
}

ExpertOwners expert_owners(const Rank& rank, const Layout& layout) {
  ExpertOwners owners{.tp = layout.tp,
                      .dp = layout.dp,
                      .experts = int(rank.config().experts.count),
                      .layers = {},
                      .owned = rank.partition().experts,
                      .shares = layout.expert_shares};
  for (int64_t layer = 0; layer < rank.config().layers; layer++)
    if (rank.config().experts.in_layer(layer)) owners.layers.push_back(int32_t(layer));
  return owners;
}

}  // namespace

Result<Control> connect_ranks(World& world, const WorkerOptions& options) {
  const Duration timeout = options.replica.start_timeout;
  Control control;
  COHORT_ASSIGN_OR_RETURN(control.ranks,
                          introduce_ranks(world, device_name(options.replica), timeout));
  if (world.size() == 1) return control;
  const bool one_host = std::ranges::all_of(
      control.ranks, [&](const RankState& rank) { return rank.host == world.host(); });
  const std::string host = options.rank_host.empty() && one_host ? "127.0.0.1" : options.rank_host;
  Status listening;
  if (world.rank() == 0) {
    auto hub = ControlHub::listen(host, {});
    if (hub.ok()) control.hub = std::move(*hub);
    listening = hub.status();
  }
  COHORT_ASSIGN_OR_RETURN(
      const auto addresses,
      world.exchange(control.hub ? control.hub->address() : std::string(), timeout));
  COHORT_RETURN_IF_ERROR(listening);
  if (addresses[0].empty()) return unavailable("rank 0 cannot listen for its ranks; see its log");
  if (control.hub) {
    COHORT_RETURN_IF_ERROR(control.hub->accept(world.size(), timeout));
  } else {
    COHORT_ASSIGN_OR_RETURN(
        control.link, ControlLink::connect(addresses[0], world.rank(), world.host(), {}, timeout));
  }
  return control;
}

int load_exit_code(const Status& why) {
  switch (why.code()) {
    case Code::kUnavailable:
    case Code::kDeadlineExceeded:
    case Code::kCancelled:
    case Code::kAborted:
    case Code::kInternal:
      return kExitRankFailed;
    default:
      return kExitUsage;
  }
}

int lead(World& world, Control& control, const WorkerOptions& options,
         const EndProcess& end_process, std::unique_ptr<EndOnSignal> loading) {
  const auto failed = [](const Status& why) {
    log_error("the replica ends: " + why.to_string());
    return kExitRankFailed;
  };
  auto rank = Rank::load(world, options.replica, ProgressPrinter());
  loading.reset();
  if (!rank.ok()) {
    failed(rank.status());
    return load_exit_code(rank.status());
  }
  const uint64_t epoch = random_epoch();
  BatchLoopOptions loop_options;
  loop_options.epoch = epoch;
  loop_options.scheduler.vocabulary = int32_t((*rank)->config().vocab);
  loop_options.prefill_slowdown = options.prefill_slowdown;
  if (!options.record_plans.empty()) {
    auto recorder = PlanRecorder::create(options.record_plans, (*rank)->limits());
    if (!recorder.ok()) return failed(recorder.status());
    loop_options.recorder = std::move(*recorder);
  }
  loop_options.split = split_policy(
      options.replica.overlap, world.size() > 1 && options.replica.gpu.device == DeviceKind::cpu,
      (*rank)->limits(), (*rank)->times());
  ExpertBoard experts(expert_owners(**rank, options.replica.layout), {}, options.expert_copies);
  loop_options.copies = [&experts] { return experts.next_copies(); };
  RankGroup group(**rank, control.hub.get(), end_process,
                  [&experts](const ExpertLoad& load) { return experts.add(load); });
  loop_options.health = [&group] { return group.failure(); };
  RankStates states(std::move(control.ranks), **rank, control.hub.get());
  SessionOptions session_options;
  session_options.coordinator = options.coordinator;
  session_options.experts = [&experts] { return experts.report(); };
  const auto session = Session::create(describe(**rank, options, epoch), session_options,
                                       [&states] { return states.now(); });
  BatchLoop loop(group, *session, std::move(loop_options));
  loop.start();
  session->start(loop);
  Status end = serve(loop, group, *session);
  if (end.ok()) bound_the_end(end_process);
  loop.stop();
  if (end.ok()) end = loop.wait();
  if (!end.ok()) {
    const int code = failed(end);
    end_process(code);
    return code;
  }
  session->stop();
  return kExitDone;
}

}  // namespace cohort
