// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_emulation/fiber.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>

#include "tests/cuda_emulation/race.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

// void emu_switch(void** save_sp, void* load_sp): saves the registers that a callee keeps (System V
// ABI for x86-64) and changes the stack.
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
namespace {
#if defined(__SANITIZE_ADDRESS__)
void leave(void** fake, const void* bottom, std::size_t size) {
  __sanitizer_start_switch_fiber(fake, bottom, size);
}
void arrive(void* fake, const void** bottom, std::size_t* size) {
  __sanitizer_finish_switch_fiber(fake, bottom, size);
}
void forget(void* p, std::size_t n) { __asan_unpoison_memory_region(p, n); }
#else
void leave(void**, const void*, std::size_t) {}
void arrive(void*, const void**, std::size_t*) {}
void forget(void*, std::size_t) {}
#endif

#if defined(EMU_TSAN)
void* new_race_fiber() { return __tsan_create_fiber(0); }
void drop_race_fiber(void* f) { __tsan_destroy_fiber(f); }
void* this_race_fiber() { return __tsan_get_current_fiber(); }
void switch_race_fiber(void* to) { __tsan_switch_to_fiber(to, __tsan_switch_to_fiber_no_sync); }
#else
void* new_race_fiber() { return nullptr; }
void drop_race_fiber(void*) {}
void* this_race_fiber() { return nullptr; }
void switch_race_fiber(void*) {}
#endif
}  // namespace

ThreadFiber::ThreadFiber(void (*entry)()) {
  void* m = mmap(nullptr, kGuard + kStack, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (m == MAP_FAILED || mprotect(m, kGuard, PROT_NONE) != 0) {
    std::perror("cuda emulation: no memory for the stack of a CUDA thread");
    std::abort();
  }
  memory_ = static_cast<char*>(m);
  auto** top = reinterpret_cast<void**>(memory_ + kGuard + kStack);
  *--top = nullptr;  // the stack is aligned as after a call
  *--top = reinterpret_cast<void*>(entry);
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  stack_pointer_ = top;
  race_fiber_ = new_race_fiber();
}

ThreadFiber::~ThreadFiber() {
  drop_race_fiber(race_fiber_);
  forget(memory_ + kGuard, kStack);
  munmap(memory_, kGuard + kStack);
}

void ThreadFiber::begin() { arrive(nullptr, &owner_bottom_, &owner_size_); }

void ThreadFiber::resume() {
  leave(&owner_fake_stack_, memory_ + kGuard, kStack);
  owner_race_fiber_ = this_race_fiber();
  switch_race_fiber(race_fiber_);
  emu_switch(&owner_pointer_, stack_pointer_);
  arrive(owner_fake_stack_, nullptr, nullptr);
}

void ThreadFiber::pause() {
  leave(&fake_stack_, owner_bottom_, owner_size_);
  switch_race_fiber(owner_race_fiber_);
  emu_switch(&stack_pointer_, owner_pointer_);
  arrive(fake_stack_, &owner_bottom_, &owner_size_);
}
}  // namespace emu
