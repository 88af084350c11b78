// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_emulation/device.h"
#include "tests/cuda_emulation/race.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

thread_local constinit uint3 threadIdx{0, 0, 0};
thread_local constinit uint3 blockIdx{0, 0, 0};
thread_local constinit dim3 blockDim{1, 1, 1};
thread_local constinit dim3 gridDim{1, 1, 1};

// void emu_switch(void** save_sp, void* load_sp): saves the callee-saved registers, changes stack.
asm(R"(
.text
.globl emu_switch
.type emu_switch,@function
emu_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size emu_switch,.-emu_switch
)");
extern "C" void emu_switch(void** save_sp, void* load_sp);

namespace emu {
Options& options() {
  static Options o;
  return o;
}
Stats& stats() {
  static Stats s;
  return s;
}

namespace {
constexpr std::size_t kStack = 128 << 10, kGuard = 4096;
enum class St : std::uint8_t { ready, block_wait, warp_wait, done };

struct Copy {
  void* dst;
  const void* src;
  int bytes;
  bool pred;
};

struct Lane {
  Lane() = default;
  Lane(const Lane&) = delete;
  ~Lane() {
    if (stack) munmap(stack, kStack + kGuard);
  }
  void* sp = nullptr;
  char* stack = nullptr;
  uint3 tid{};
  unsigned lin = 0;
  St st = St::done;
  int bar_id = 0, bar_expected = -1;
  std::uint32_t wmask = 0;
  Site site;
  std::vector<Copy> open;
  std::deque<std::vector<Copy>> groups;
#if defined(__SANITIZE_ADDRESS__)
  void* fake = nullptr;
#endif
#if defined(EMU_TSAN)
  void* fiber = nullptr;
#endif
};

struct Warp {
  void* args[32] = {};
  std::uint32_t arrived = 0;
  char hb = 0;  // address used for happens-before annotations
};

// The fibers of one OS thread. Reused for every block that this thread runs.
struct Engine {
  std::vector<std::unique_ptr<Lane>> lanes;
  std::vector<Warp> warps;
  std::vector<unsigned> order;
  Lane* cur = nullptr;
  void* main_sp = nullptr;
  void (*body)(const void*) = nullptr;
  const void* args = nullptr;
  unsigned n = 0, alive = 0, at_barrier = 0;
  std::uint64_t block_seq = 0;
  std::unique_ptr<unsigned char[]> dyn;
  std::size_t dyn_cap = 0;
  struct Array {
    int line;
    std::size_t size;
    std::uint64_t seq;
    std::unique_ptr<unsigned char[]> data;
  };
  std::vector<Array> shared;
  std::minstd_rand rng{1};
  char hb_block = 0, hb_all = 0;
  Stats st;
#if defined(__SANITIZE_ADDRESS__)
  void* main_fake = nullptr;
  const void* main_bottom = nullptr;
  std::size_t main_size = 0;
#endif
#if defined(EMU_TSAN)
  void* main_fiber = nullptr;
#endif
};
thread_local Engine* current = nullptr;
Engine& engine() { return *current; }
// Race checks need one set of fibers and shared memory per stream; else one per OS thread does.
Engine& pick_engine() {
#if defined(EMU_TSAN)
  static std::atomic_flag busy;  // invisible to ThreadSanitizer, unlike a mutex
  static auto& all = *new std::vector<std::pair<void*, Engine*>>;
  Bookkeeping b;
  while (busy.test_and_set()) {
  }
  Engine* found = nullptr;
  for (auto& [fiber, e] : all)
    if (fiber == __tsan_get_current_fiber()) found = e;
  if (!found) all.emplace_back(__tsan_get_current_fiber(), found = new Engine);
  busy.clear();
  return *found;
#else
  thread_local Engine mine;
  return mine;
#endif
}

[[noreturn]] void fail(const char* what, const Lane* l) {
  std::fprintf(stderr, "cuda emulation: %s", what);
  if (l)
    std::fprintf(stderr, " [block (%u,%u,%u) thread (%u,%u,%u) at %s:%u]", blockIdx.x, blockIdx.y,
                 blockIdx.z, l->tid.x, l->tid.y, l->tid.z, l->site.file_name(), l->site.line());
  std::fputc('\n', stderr);
  std::abort();
}

EMU_NO_TSAN void to_main(Engine& e, [[maybe_unused]] Lane& l) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&l.fake, e.main_bottom, e.main_size);
#endif
#if defined(EMU_TSAN)
  __tsan_switch_to_fiber(e.main_fiber, __tsan_switch_to_fiber_no_sync);
#endif
  emu_switch(&l.sp, e.main_sp);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(l.fake, &e.main_bottom, &e.main_size);
#endif
}
EMU_NO_TSAN void to_lane(Engine& e, Lane& l) {
  e.cur = &l;
  threadIdx = l.tid;
  ++e.st.switches;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&e.main_fake, l.stack + kGuard, kStack);
#endif
#if defined(EMU_TSAN)
  __tsan_switch_to_fiber(l.fiber, __tsan_switch_to_fiber_no_sync);
#endif
  emu_switch(&e.main_sp, l.sp);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(e.main_fake, nullptr, nullptr);
#endif
}

EMU_NO_TSAN void fiber_entry() {
  Engine& e = engine();
  Lane& l = *e.cur;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &e.main_bottom, &e.main_size);
#endif
  for (;;) {
    ordered_after(&e.hb_all);
    e.body(e.args);
    if (!l.open.empty()) cp_async_commit();
    if (!l.groups.empty()) fail("thread exits with cp.async groups it never waited for", &l);
    orders_before(&e.hb_all);
    l.st = St::done;
    to_main(e, l);
  }
}

Lane& make_lane(Engine& e) {
  auto l = std::make_unique<Lane>();
  void* m = mmap(nullptr, kStack + kGuard, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (m == MAP_FAILED) std::abort();
  mprotect(m, kGuard, PROT_NONE);
  l->stack = static_cast<char*>(m);
  auto** sp = reinterpret_cast<void**>(l->stack + kGuard + kStack);
  *--sp = nullptr;  // keeps rsp % 16 == 8 at entry
  *--sp = reinterpret_cast<void*>(&fiber_entry);
  for (int i = 0; i < 6; ++i) *--sp = nullptr;
  l->sp = sp;
#if defined(EMU_TSAN)
  l->fiber = __tsan_create_fiber(0);
#endif
  e.lanes.push_back(std::move(l));
  return *e.lanes.back();
}

// Releases threads whose barrier is complete. Returns whether any was released.
EMU_NO_TSAN bool release_barriers(Engine& e) {
  bool any = false;
  for (int id = 0; id < 16; ++id) {
    unsigned waiting = 0;
    int expected = -1;
    const Lane* first = nullptr;
    for (unsigned i = 0; i < e.n; ++i) {
      Lane& l = *e.lanes[i];
      if (l.st != St::block_wait || l.bar_id != id) continue;
      if (first &&
          (l.site.line() != first->site.line() || l.site.file_name() != first->site.file_name()) &&
          expected < 0)
        fail("threads of one block wait at different __syncthreads calls", &l);
      first = &l;
      expected = l.bar_expected;
      ++waiting;
    }
    if (!waiting || waiting != (expected < 0 ? e.alive : unsigned(expected))) continue;
    ++e.st.barriers;
    for (unsigned i = 0; i < e.n; ++i)
      if (e.lanes[i]->st == St::block_wait && e.lanes[i]->bar_id == id) e.lanes[i]->st = St::ready;
    e.at_barrier -= waiting;
    any = true;
  }
  return any;
}

EMU_NO_TSAN void run_block(Engine& e) {
  e.warps.assign((e.n + 31) / 32, Warp{});
  e.alive = e.n;
  e.at_barrier = 0;
  ++e.block_seq;
  if (e.dyn) std::memset(e.dyn.get(), 0xff, e.dyn_cap);
  for (unsigned i = 0; i < e.n; ++i) {
    Lane& l = *e.lanes[i];
    l.lin = i;
    l.tid = {i % blockDim.x, i / blockDim.x % blockDim.y, i / (blockDim.x * blockDim.y)};
    l.st = St::ready;
  }
  orders_before(&e.hb_all);
  while (e.alive) {
    bool progress = false;
    if (options().order == Order::random) std::shuffle(e.order.begin(), e.order.end(), e.rng);
    for (unsigned k = 0; k < e.n;
         k += 32) {  // keep a warp going while it can: its stacks stay in cache
      const unsigned end = std::min(k + 32, e.n);
      for (bool ran = true; ran;) {
        ran = false;
        for (unsigned i = k; i < end; ++i) {
          Lane& l = *e.lanes[e.order[i]];
          if (l.st != St::ready) continue;
          to_lane(e, l);
          ran = progress = true;
          if (l.st == St::done) --e.alive;
        }
        if (options().order == Order::random) break;
      }
    }
    if (!progress && e.alive && !(e.at_barrier && release_barriers(e))) {
      for (unsigned i = 0; i < e.n; ++i)
        if (e.lanes[i]->st != St::done)
          fail("block deadlock: a barrier or warp collective never completes", e.lanes[i].get());
    }
  }
  ordered_after(&e.hb_all);
}
}  // namespace

EMU_NO_TSAN void block_barrier(Site site, int id, int expected) {
  Engine& e = engine();
  Lane& l = *e.cur;
  l.st = St::block_wait;
  ++e.at_barrier;
  l.bar_id = id;
  l.bar_expected = expected;
  l.site = site;
  orders_before(&e.hb_block);
  to_main(e, l);
  ordered_after(&e.hb_block);
}

EMU_NO_TSAN void warp_collective(std::uint32_t mask, void* arg, WarpFn fn, Site site,
                                 bool orders_memory) {
  Engine& e = engine();
  Lane& l = *e.cur;
  Warp& w = e.warps[l.lin / 32];
  unsigned lane = l.lin % 32;
  std::uint32_t present = e.n - l.lin / 32 * 32 >= 32 ? ~0u : (1u << (e.n % 32)) - 1;
  std::uint32_t need = mask & present;
  l.site = site;
  if (!(mask >> lane & 1)) fail("lane calls a warp collective with a mask that leaves it out", &l);
  l.wmask = mask;
  w.args[lane] = arg;
  w.arrived |= 1u << lane;
  if (orders_memory) orders_before(&w.hb);
  if ((w.arrived & need) != need) {
    l.st = St::warp_wait;
    to_main(e, l);
    if (orders_memory) ordered_after(&w.hb);
    return;
  }
  for (unsigned i = 0; i < 32; ++i) {
    if (!(need >> i & 1)) continue;
    Lane& o = *e.lanes[l.lin / 32 * 32 + i];
    if (o.wmask != mask || o.site.line() != site.line() || o.site.file_name() != site.file_name())
      fail("lanes of one warp meet in different collectives or with different masks", &l);
  }
  ++e.st.warp_ops;
  fn(w.args, need);
  w.arrived &= ~need;
  for (unsigned i = 0; i < 32; ++i)
    if ((need >> i & 1) && i != lane) e.lanes[l.lin / 32 * 32 + i]->st = St::ready;
  if (orders_memory) ordered_after(&w.hb);
}

unsigned lane_id() { return engine().cur->lin % 32; }
void* dynamic_shared_base() { return engine().dyn.get(); }

EMU_NO_TSAN void* shared_array(int line, std::size_t n) {
  Bookkeeping b;
  Engine& e = engine();
  Engine::Array* found = nullptr;
  for (auto& a : e.shared)
    if (a.line == line && a.size == n) found = &a;
  if (!found)
    found = &e.shared.emplace_back(Engine::Array{line, n, 0, std::make_unique<unsigned char[]>(n)});
  if (found->seq != e.block_seq) std::fill_n(found->data.get(), n, 0xff);
  found->seq = e.block_seq;
  return found->data.get();
}

// The bytes land only when the issuing thread waits for their group, so a missing wait reads NaN.
void cp_async(void* dst, const void* src, int bytes, bool pred) {
  writes(dst, bytes);
  std::memset(dst, 0xff, bytes);
  engine().cur->open.push_back({dst, src, bytes, pred});
}
void cp_async_commit() {
  Lane& l = *engine().cur;
  l.groups.push_back(std::move(l.open));
  l.open.clear();
}
void cp_async_wait(int keep) {
  Lane& l = *engine().cur;
  while (int(l.groups.size()) > keep) {
    for (auto& c : l.groups.front()) {
      writes(c.dst, c.bytes);
      if (c.pred) {
        reads(c.src, c.bytes);
        std::memcpy(c.dst, c.src, c.bytes);
      } else
        std::memset(c.dst, 0, c.bytes);
    }
    l.groups.pop_front();
  }
}

void run_grid(dim3 grid, dim3 block, std::size_t smem, void (*body)(const void*),
              const void* args) {
  const unsigned n = block.x * block.y * block.z;
  const std::uint64_t blocks = std::uint64_t(grid.x) * grid.y * grid.z;
  if (!n || n > 1024 || !blocks || smem > 227 << 10) fail("invalid launch configuration", nullptr);
  std::atomic<std::uint64_t> next{0};
  static std::mutex stats_mutex;
  auto work = [&] {
    Engine& e = *(current = &pick_engine());
#if defined(EMU_TSAN)
    e.main_fiber = __tsan_get_current_fiber();
#endif
    while (e.lanes.size() < n) make_lane(e);
    e.n = n;
    e.body = body;
    e.args = args;
    e.rng.seed(options().seed);
    e.order.resize(n);
    for (unsigned i = 0; i < n; ++i) e.order[i] = options().order == Order::reverse ? n - 1 - i : i;
    if (smem) {
      e.dyn.reset(new unsigned char[smem]);
    } else
      e.dyn.reset();  // exact size: ASan sees overruns
    e.dyn_cap = smem;
    blockDim = block;
    gridDim = grid;
    for (std::uint64_t b; (b = next.fetch_add(1)) < blocks;) {
      blockIdx = {unsigned(b % grid.x), unsigned(b / grid.x % grid.y),
                  unsigned(b / grid.x / grid.y)};
      run_block(e);
    }
    std::unique_lock g(stats_mutex, std::defer_lock);
    if (options().workers > 1) g.lock();  // a lock would order streams for the race check
    auto& s = stats();
    s.switches += e.st.switches;
    s.barriers += e.st.barriers;
    s.warp_ops += e.st.warp_ops;
    s.ldmatrix_phases += e.st.ldmatrix_phases;
    s.ldmatrix_conflicts += e.st.ldmatrix_conflicts;
    e.st = {};
  };
  const unsigned workers = unsigned(std::min<std::uint64_t>(options().workers, blocks));
  std::vector<std::thread> pool;
  for (unsigned i = 1; i < workers; ++i) pool.emplace_back(work);
  work();
  for (auto& t : pool) t.join();
  stats().cuda_threads += blocks * n;
}

// ---- tensor-core instructions, following the fragment layouts of the PTX ISA ----
namespace {
struct LdArg {
  const void* row;
  std::uint32_t* r;
};
struct MmaArg {
  float* d;
  const std::uint32_t* a;
  const std::uint32_t* b;
};

EMU_NO_TSAN std::uint16_t half_of(std::uint32_t v, int i) { return std::uint16_t(v >> (16 * i)); }
EMU_NO_TSAN float bf(std::uint16_t v) {
  std::uint32_t u = std::uint32_t(v) << 16;
  float f;
  __builtin_memcpy(&f, &u, 4);
  return f;
}

EMU_NO_TSAN void count_conflicts(void** x) {
  Stats& s = engine().st;
  for (int m = 0; m < 4;
       ++m) {  // each 8-lane phase reads 8 rows of 16 bytes: all 32 banks once if conflict free
    unsigned hits[32] = {}, worst = 0;
    for (int i = 0; i < 8; ++i) {
      auto addr = reinterpret_cast<std::uintptr_t>(static_cast<LdArg*>(x[8 * m + i])->row);
      for (int w = 0; w < 4; ++w) worst = std::max(worst, ++hits[(addr / 4 + w) % 32]);
    }
    ++s.ldmatrix_phases;
    s.ldmatrix_conflicts += worst - 1;
  }
}
std::uint32_t load16(const void* row, int col) {
  auto* p = static_cast<const std::uint16_t*>(row) + col;
  reads(p, sizeof *p);
  return *p;
}
template <bool Trans>
EMU_NO_TSAN void ldmatrix_fn(void** x, std::uint32_t mask) {
  if (mask != ~0u) fail("ldmatrix needs a full warp", nullptr);
  count_conflicts(x);
  for (int t = 0; t < 32; ++t)
    for (int m = 0; m < 4; ++m) {
      const int c = 2 * (t % 4), g = t / 4;
      const void* p0 = static_cast<LdArg*>(x[8 * m + (Trans ? c : g)])->row;
      const void* p1 = static_cast<LdArg*>(x[8 * m + (Trans ? c + 1 : g)])->row;
      if (reinterpret_cast<std::uintptr_t>(p0) % 16)
        fail("ldmatrix row address is not 16-byte aligned", nullptr);
      std::uint32_t lo = load16(p0, Trans ? g : c), hi = load16(p1, Trans ? g : c + 1);
      static_cast<LdArg*>(x[t])->r[m] = lo | hi << 16;
    }
}
EMU_NO_TSAN void mma_fn(void** x, std::uint32_t mask) {
  if (mask != ~0u) fail("mma.sync needs a full warp", nullptr);
  float A[16][16], B[16][8];
  for (int t = 0; t < 32; ++t) {
    auto& m = *static_cast<MmaArg*>(x[t]);
    int g = t / 4, c = t % 4 * 2;
    for (int r = 0; r < 4; ++r)
      for (int h = 0; h < 2; ++h) A[g + (r & 1) * 8][c + h + (r >> 1) * 8] = bf(half_of(m.a[r], h));
    for (int r = 0; r < 2; ++r)
      for (int h = 0; h < 2; ++h) B[c + h + r * 8][g] = bf(half_of(m.b[r], h));
  }
  for (int t = 0; t < 32; ++t) {
    auto& m = *static_cast<MmaArg*>(x[t]);
    for (int i = 0; i < 4; ++i) {
      int row = t / 4 + (i >> 1) * 8, col = t % 4 * 2 + (i & 1);
      float s = m.d[i];
      for (int k = 0; k < 16; ++k) s += A[row][k] * B[k][col];
      m.d[i] = s;
    }
  }
}
}  // namespace
}  // namespace emu

namespace gpu {
void ldmatrix_x4(std::uint32_t (&r)[4], const void* row, emu::Site s) {
  emu::LdArg a{row, r};
  emu::warp_collective(~0u, &a, &emu::ldmatrix_fn<false>, s, false);
}
void ldmatrix_x4_trans(std::uint32_t (&r)[4], const void* row, emu::Site s) {
  emu::LdArg a{row, r};
  emu::warp_collective(~0u, &a, &emu::ldmatrix_fn<true>, s, false);
}
void mma_m16n8k16_bf16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                       emu::Site s) {
  emu::MmaArg m{d, a, b};
  emu::warp_collective(~0u, &m, &emu::mma_fn, s, false);
}
}  // namespace gpu
