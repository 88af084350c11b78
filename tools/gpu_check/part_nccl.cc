// SPDX-License-Identifier: Apache-2.0
// NCCL on one GPU. First one rank, with memory that is registered as a window and a sum in a
// captured graph. Then replicas whose ranks are processes that all use the same GPU: NCCL takes
// them for ranks of different hosts (NCCL_HOSTID) and lets them talk over sockets, which says
// nothing about speed and everything about correctness. Their tokens must be those of one rank.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/failure.h"
#include "comm/nccl_link.h"
#include "tests/support/replay.h"
#include "tests/support/tiny_checkpoint.h"
#include "tools/gpu_check/child.h"
#include "tools/gpu_check/parts.h"
#include "tools/gpu_check/process_world.h"
#include "worker/rank.h"

namespace cohort::gpu_check {
namespace {

namespace fs = std::filesystem;
constexpr Duration kPatience = std::chrono::seconds(30);

void require(const Status& status) {
  if (!status.ok()) throw Failure(status);
}
void require(ncclResult_t result, const char* call) {
  if (result != ncclSuccess)
    throw Failure(unavailable(concat(call, ": ", ncclGetErrorString(result))));
}

// Memory of ncclMemAlloc, registered with a communicator of one.
class Window {
 public:
  Window(NcclLink& link, size_t bytes) : link_(link) {
    require(ncclMemAlloc(&data_, bytes), "ncclMemAlloc");
    require(link.call("ncclCommWindowRegister", kPatience, [&](ncclComm_t comm) {
      return ncclCommWindowRegister(comm, data_, bytes, &window_, NCCL_WIN_COLL_SYMMETRIC);
    }));
  }
  ~Window() {
    const Status ended = link_.call("ncclCommWindowDeregister", kPatience, [&](ncclComm_t comm) {
      return window_ == nullptr ? ncclSuccess : ncclCommWindowDeregister(comm, window_);
    });
    if (ended.ok()) ncclMemFree(data_);
  }
  Window(const Window&) = delete;
  float* data() const { return static_cast<float*>(data_); }
  bool registered() const { return window_ != nullptr; }

 private:
  NcclLink& link_;
  void* data_ = nullptr;
  ncclWindow_t window_ = nullptr;
};

void check_one_rank(Report& report) {
  const std::shared_ptr<CudaDevice> device = open_gpu();
  int version = 0;
  require(ncclGetVersion(&version), "ncclGetVersion");
  report.note("nccl", "version", concat(version));
  ncclUniqueId id;
  require(ncclGetUniqueId(&id), "ncclGetUniqueId");
  NcclLink link("group of one");
  require(link.start(id, 0, 1, kPatience));
  constexpr size_t kCount = 8192;
  const Window window(link, kCount * sizeof(float));
  report.note("window registration", "one rank",
              window.registered() ? "registered" : "taken, but without a window");
  std::vector<float> values(kCount);
  for (size_t i = 0; i < kCount; i++) values[i] = float(i % 1000) * 0.25f;
  device->upload(window.data(), values.data(), kCount * sizeof(float));
  const auto sum = [&] {
    require(link.call("ncclAllReduce", kPatience, [&](ncclComm_t comm) {
      return ncclAllReduce(window.data(), window.data(), kCount, ncclFloat32, ncclSum, comm,
                           device->compute());
    }));
  };
  sum();  // NCCL sets itself up in the first one
  const CudaGraph graph = CudaGraph::capture(*device, sum);
  for (int i = 0; i < 3; i++) graph.launch(device->compute());
  std::vector<float> got(kCount);
  device->download(got.data(), window.data(), kCount * sizeof(float));
  report.pass("all-reduce in a graph", "one rank, 3 replays", got == values,
              "leaves one rank's sum");
  require(link.status());
}

// What the ranks of a replica are started with.
struct Replica {
  int tp = 1, pp = 1;
  bool graphs = true, deterministic = false;
  int ranks() const { return tp * pp; }
  std::string text() const {
    return concat("TP", tp, " PP", pp, graphs ? ", graphs" : ", no graphs",
                  deterministic ? ", deterministic bf16" : ", f32");
  }
};

std::vector<testing::TestRequest> requests() {
  std::vector<testing::TestRequest> all;
  const int lengths[] = {5, 37, 1, 17, 16};
  for (int i = 0; i < 5; i++) {
    testing::TestRequest r;
    for (int t = 0; t < lengths[i]; t++)
      r.prompt.push_back((t * 7919 + i * 104729 + t * t * 31) % 203);
    r.outputs = 6 + i;
    r.arrival = i / 2;
    r.sampling.temperature = 0;
    r.sampling.logprobs = 2;
    all.push_back(std::move(r));
  }
  return all;
}

ReplicaOptions options_of(const Replica& replica) {
  ReplicaOptions o = testing::tiny_options(replica.tp, replica.pp);
  o.activations = ActivationMode::native;
  o.gpu.device = DeviceKind::cuda;
  o.gpu.ordinal = 0;
  o.gpu.dtype = o.kv_dtype = replica.deterministic ? DType::bf16 : DType::f32;
  o.gpu.graphs = replica.graphs;
  o.gpu.deterministic = replica.deterministic;
  o.kv_memory = int64_t(4) << 20;
  o.start_timeout = kPatience;
  o.load_timeout = kPatience;
  return o;
}

void write_results(std::ostream& out, const StepResult& result) {
  out << std::hexfloat;
  for (const SlotResult& slot : result.slots)
    out << result.step << ' ' << slot.slot << ' ' << slot.sampled.token << ' '
        << slot.sampled.logprob << ' ' << (slot.error.empty() ? "-" : slot.error) << '\n';
}

void run_rank(const std::string& folder, int number, const Replica& replica) {
  ProcessWorld world(folder, number, replica.ranks());
  testing::TinyCheckpoint checkpoint(testing::tiny_model(DType::f32, false));
  const ReplicaOptions options = options_of(replica);
  auto loaded = Rank::load(world, checkpoint, options, {});
  require(loaded.status());
  const std::unique_ptr<Rank> rank = std::move(loaded).value();
  StepLimits limits = options.limits;
  limits.blocks = rank->limits().blocks;
  const testing::Schedule schedule = testing::make_schedule(requests(), limits, {});
  std::ostringstream out;
  int ahead = 0;
  const auto collect = [&] {
    auto result = rank->collect();
    require(result.status());
    if (*result) write_results(out, **result);
    ahead--;
  };
  for (const StepPlan& plan : schedule.plans) {
    require(rank->launch(plan));
    if (++ahead == rank->depth()) collect();
  }
  while (ahead > 0) collect();
  if (!out.str().empty()) std::ofstream(folder + "/results") << out.str();
}

std::string content_of(const std::string& path) {
  std::ostringstream content;
  std::ifstream file(path);
  if (file) content << file.rdbuf();
  return content.str();
}

// The results as text, one sampled token a line; throws where a rank fails.
std::string run_replica(const Report& report, const Replica& replica) {
  const std::string name = concat("nccl_tp", replica.tp, "_pp", replica.pp, "_", replica.graphs,
                                  replica.deterministic),
                    folder = concat(report.settings().folder, "/", name);
  fs::remove_all(folder);
  fs::create_directories(folder);
  std::vector<Child> ranks;
  for (int r = 0; r < replica.ranks(); r++)
    ranks.emplace_back(
        std::vector<std::string>{own_path(), "nccl-rank", folder, std::to_string(r),
                                 std::to_string(replica.tp), std::to_string(replica.pp),
                                 std::to_string(replica.graphs),
                                 std::to_string(replica.deterministic)},
        Environment{{"NCCL_HOSTID", concat("r", r)},
                    {"NCCL_NET", "Socket"},
                    {"NCCL_SOCKET_IFNAME", "lo"},
                    {"NCCL_DEBUG", "WARN"}},
        concat(folder, "/rank", r, ".log"));
  const Deadline deadline = Deadline::after(std::chrono::seconds(40));
  for (int r = 0; r < replica.ranks(); r++) {
    const ChildEnd end = ranks[size_t(r)].wait(deadline);
    if (!end.well)
      throw Failure(
          unavailable(concat("rank ", r, " ", end.text, "; see ", folder, "/rank", r, ".log")));
  }
  return content_of(folder + "/results");
}

// Without the log-probabilities.
std::string tokens_of(const std::string& results) {
  std::istringstream in(results);
  std::string tokens, step, slot, token, logprob, error;
  while (in >> step >> slot >> token >> logprob && std::getline(in, error))
    tokens += concat(step, ' ', slot, ' ', token, error, '\n');
  return tokens;
}

void compare_layouts(Report& report, bool deterministic) {
  const std::string one = run_replica(report, {1, 1, true, deterministic});
  report.pass("one rank", Replica{1, 1, true, deterministic}.text(), !one.empty(), "gives tokens");
  for (const auto& [tp, pp] : {std::pair(2, 1), std::pair(1, 2), std::pair(2, 2)})
    for (const bool graphs : {true, false}) {
      if (deterministic && !graphs) continue;
      const Replica replica{tp, pp, graphs, deterministic};
      report.guarded("processes on one GPU", replica.text(), [&, deterministic = deterministic] {
        const std::string results = run_replica(report, replica);
        report.pass("processes on one GPU", replica.text(), tokens_of(results) == tokens_of(one),
                    "tokens of one rank");
        if (deterministic)
          report.pass("processes on one GPU", replica.text(), results == one,
                      "log-probabilities of one rank, to the bit");
      });
    }
}

}  // namespace

int run_nccl_rank(int argc, char** argv) {
  if (argc != 8) return 2;
  try {
    run_rank(
        argv[2], std::atoi(argv[3]),
        {std::atoi(argv[4]), std::atoi(argv[5]), std::atoi(argv[6]) != 0, std::atoi(argv[7]) != 0});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}

void check_nccl(Report& report) {
  report.guarded("one rank", "", [&] { check_one_rank(report); });
  report.guarded("processes on one GPU", "f32", [&] { compare_layouts(report, false); });
  report.guarded("processes on one GPU", "bf16", [&] { compare_layouts(report, true); });
}

}  // namespace cohort::gpu_check
