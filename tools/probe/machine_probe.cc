// SPDX-License-Identifier: Apache-2.0
#include "tools/probe/machine_probe.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <numeric>
#include <thread>

#include "base/buffer.h"
#include "base/clock.h"
#include "base/threads.h"
#include "tools/probe/host_facts.h"
#include "tools/probe/loops.h"

namespace cohort {
namespace {

// Short, so that where others want the processors, too, some runs have them to themselves.
constexpr int kRuns = 50;
constexpr double kRunSeconds = 0.001;
constexpr size_t kRunBytes = size_t(16) << 20;
// However busy the machine is, a probe ends after this and a few runs.
constexpr double kMostSeconds = 0.25;
constexpr int kFewestRuns = 3;
constexpr int kPasses = 5;  // over memory that is read in pieces

struct Loops {
  ArithmeticLoop* fma;
  ArithmeticLoop* int8;
  ArithmeticLoop* tiles;
  ReadLoop* read;
};

Loops loops_of(Isa isa) {
  switch (isa) {
    case Isa::portable:
      break;
    case Isa::avx2:
      return {fma_avx2, int8_avx2, nullptr, read_avx2};
    case Isa::avx512:
      return {fma_avx512, int8_avx512, nullptr, read_avx512};
    case Isa::amx:
      return {fma_avx512, int8_avx512, tiles_amx, read_avx512};
  }
  return {fma_portable, int8_portable, nullptr, read_portable};
}

double now() { return seconds(std::chrono::steady_clock::now().time_since_epoch()); }

// Calls run(0), run(1), .. as often as is good for a measurement.
void repeat(int runs, FunctionRef<void(int)> run) {
  const double begin = now();
  for (int i = 0; i < runs && (i < kFewestRuns || now() - begin < kMostSeconds); i++) run(i);
}

double seconds_of(ThreadPool& pool, FunctionRef<void(int)> work) {
  const double start = now();
  pool.run(work);
  return now() - start;
}

// Operations a second of all threads of the pool.
double best_rate(ThreadPool& pool, ArithmeticLoop* loop) {
  int64_t rounds = 1000;
  for (double took = 0; took < kRunSeconds / 4; rounds *= 2) {
    const double start = now();
    (void)loop(rounds);
    took = now() - start;
  }
  rounds *= 2;
  double best = 0;
  repeat(kRuns, [&](int) {
    double operations = 0;  // of one thread; all do the same
    const double took = seconds_of(pool, [&](int thread) {
      const double mine = loop(rounds);
      if (thread == 0) operations = mine;
    });
    best = std::max(best, operations * pool.size() / took);
  });
  return best;
}

Rate arithmetic_rate(ArithmeticLoop* loop, int threads) {
  ThreadPool alone(1);
  Rate rate;
  rate.one = rate.all = best_rate(alone, loop);
  if (threads == 1) return rate;
  ThreadPool pool(threads);
  rate.all = std::max(rate.one, best_rate(pool, loop));
  return rate;
}

size_t whole_steps(int64_t bytes) {
  return std::max<size_t>(size_t(bytes) / kReadStep, 1) * kReadStep;
}

// bytes: of each thread, read over and over, in pieces where that takes long. Of each piece the
// best of several times counts, but all pieces do: caches keep some of them longer than others.
double best_read(ThreadPool& pool, ReadLoop* loop, size_t bytes) {
  const Buffer memory(bytes * size_t(pool.size()));
  const size_t pieces = std::max<size_t>(1, bytes / kRunBytes), piece = whole_steps(bytes / pieces);
  const size_t times = std::max<size_t>(1, kRunBytes / bytes);
  std::atomic<uint64_t> sum{0};
  // Written by who reads it: pages that nobody wrote are all the same one, and on a host with
  // several memories a page is near who wrote it first.
  pool.run(
      [&](int thread) { std::memset(memory.data() + size_t(thread) * bytes, thread + 1, bytes); });
  std::vector<double> best(pieces, std::numeric_limits<double>::max());
  repeat(pieces == 1 ? kRuns : kPasses, [&](int) {
    for (size_t p = 0; p < pieces; p++) {
      const double took = seconds_of(pool, [&](int thread) {
        const std::byte* mine = memory.data() + size_t(thread) * bytes + p * piece;
        for (size_t i = 0; i < times; i++) sum += loop(mine, piece);
      });
      best[p] = std::min(best[p], took);
    }
  });
  const double all = std::accumulate(best.begin(), best.end(), 0.0);
  return double(piece * pieces * times) * pool.size() / all;
}

// --- Placement

struct alignas(128) Flag {
  std::atomic<uint32_t> value{0};
};

constexpr uint32_t kStop = 0;

void pin_to(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(size_t(cpu), &set);
  // Where it is refused the threads run where they like, as those of a rank do.
  (void)pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

// Calls work(0) and work(1) on two threads of their own, on the first two processors.
void run_on_two(const std::vector<int>& cpus, FunctionRef<void(int)> work) {
  std::thread threads[2];
  for (int i = 0; i < 2; i++)
    threads[i] = std::thread([&, i] {
      pin_to(cpus[size_t(i)]);
      work(i);
    });
  for (std::thread& thread : threads) thread.join();
}

uint32_t await_change(const Flag& flag, uint32_t old) {
  uint32_t value = old;
  while ((value = flag.value.load(std::memory_order_acquire)) == old) cpu_pause();
  return value;
}

// The best of several stretches: in others one of the two may have lost its processor for a while.
double round_trip(const std::vector<int>& cpus) {
  constexpr int kStretches = 20, kTrips = 1000;
  Flag there, back;
  there.value = back.value = 1;
  double best = 1;
  run_on_two(cpus, [&](int side) {
    if (side == 1) {
      for (uint32_t seen = 1; seen != kStop;) {
        seen = await_change(there, seen);
        back.value.store(seen, std::memory_order_release);
      }
      return;
    }
    uint32_t trip = 1;
    repeat(kStretches, [&](int) {
      const double start = now();
      for (int i = 0; i < kTrips; i++) {
        there.value.store(trip + 1, std::memory_order_release);
        await_change(back, trip);
        trip++;
      }
      best = std::min(best, (now() - start) / kTrips);
    });
    there.value.store(kStop, std::memory_order_release);
  });
  return best;
}

double scaling(const std::vector<int>& cpus, ArithmeticLoop* loop) {
  double one = 0, both[2] = {0, 0}, best = 0;
  const auto rate = [loop] {
    const double start = now();
    double operations = 0;
    while (now() - start < kRunSeconds) operations += loop(10000);
    return operations / (now() - start);
  };
  repeat(kRuns, [&](int) {
    run_on_two(cpus, [&](int side) {
      if (side == 0) one = std::max(one, rate());
    });
    run_on_two(cpus, [&](int side) { both[side] = rate(); });
    best = std::max(best, both[0] + both[1]);
  });
  return best / one;
}

}  // namespace

IsaPeaks probe_peaks(Isa isa, int threads) {
  const Loops loops = loops_of(isa);
  IsaPeaks peaks{.isa = isa,
                 .fma = arithmetic_rate(loops.fma, threads),
                 .int8 = arithmetic_rate(loops.int8, threads),
                 .tiles = {}};
  if (loops.tiles == nullptr) return peaks;
  peaks.tiles = arithmetic_rate(loops.tiles, threads);
  if (peaks.tiles.all > peaks.int8.all) peaks.int8 = peaks.tiles;
  return peaks;
}

int64_t memory_probe_bytes() {
  const HostFacts facts = read_host_facts();
  const int64_t wanted = std::max<int64_t>(4 * facts.last_level_bytes(), int64_t(256) << 20);
  return facts.available == 0 ? wanted : std::min(wanted, facts.available / 8);
}

Rate probe_memory(Isa isa, int threads, int64_t bytes) {
  ReadLoop* read = loops_of(isa).read;
  ThreadPool alone(1);
  Rate rate;
  rate.one = rate.all = best_read(alone, read, whole_steps(bytes));
  if (threads == 1) return rate;
  ThreadPool pool(threads);
  rate.all = std::max(rate.one, best_read(pool, read, whole_steps(bytes / threads)));
  return rate;
}

Rate probe_cache(Isa isa, int threads) {
  const HostFacts facts = read_host_facts();
  int64_t second = 256 << 10;  // where nothing is told
  for (const CacheFacts& cache : facts.caches)
    if (cache.level == 2) second = cache.bytes / cache.sharers;
  const size_t bytes = whole_steps(second / 2);
  ReadLoop* read = loops_of(isa).read;
  ThreadPool alone(1);
  Rate rate;
  rate.one = rate.all = best_read(alone, read, bytes);
  if (threads == 1) return rate;
  ThreadPool pool(threads);
  rate.all = std::max(rate.one, best_read(pool, read, bytes));
  return rate;
}

// The bounds are between what was seen: siblings at 60 ns and 1.1, neighbours at 130 to 215 ns,
// processors of different caches at 500 to 680 ns.
std::string_view Placement::kind() const {
  if (scaling < 1.35) return "siblings";
  return round_trip < 300e-9 ? "near" : "far";
}

std::optional<Placement> probe_placement(Isa isa) {
  const std::vector<int> cpus = read_host_facts().allowed;
  if (cpus.size() < 2) return std::nullopt;
  return Placement{.round_trip = round_trip(cpus), .scaling = scaling(cpus, loops_of(isa).fma)};
}

MachineLimits probe_machine(Isa isa, int threads) {
  return {.threads = threads,
          .memory = probe_memory(isa, threads, memory_probe_bytes()),
          .cache = probe_cache(isa, threads),
          .peaks = probe_peaks(isa, threads),
          .placement = probe_placement(isa)};
}

}  // namespace cohort
