// SPDX-License-Identifier: Apache-2.0
// Hooks for ThreadSanitizer builds (-DEMU_TSAN); nothing otherwise.
#pragma once
#if defined(EMU_TSAN)
#include <sanitizer/tsan_interface.h>
extern "C" {
void AnnotateIgnoreReadsBegin(const char*, int);
void AnnotateIgnoreReadsEnd(const char*, int);
void AnnotateIgnoreWritesBegin(const char*, int);
void AnnotateIgnoreWritesEnd(const char*, int);
void __tsan_read_range(void*, unsigned long);
void __tsan_write_range(void*, unsigned long);
}
#endif
#include <cstddef>

namespace emu {
// Under ThreadSanitizer every emulated stream is a thread of its own: events, graph edges,
// launches, synchronisation and collectives are its only ordering, so work on two streams that
// touches the same bytes without such an edge is reported as a data race, whatever order the
// emulation ran it in.
#if defined(EMU_TSAN)
inline void orders_before(const void* token) { __tsan_release(const_cast<void*>(token)); }
inline void ordered_after(const void* token) { __tsan_acquire(const_cast<void*>(token)); }
struct Bookkeeping {  // the emulation's own state is guarded by its lock, which must not order
                      // device work
  Bookkeeping() {
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  }
  ~Bookkeeping() {
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
  }
  Bookkeeping(const Bookkeeping&) = delete;
};
// The emulation itself is compiled without instrumentation, so copies say what they touch.
inline void reads(const void* p, std::size_t n) { __tsan_read_range(const_cast<void*>(p), n); }
inline void writes(void* p, std::size_t n) { __tsan_write_range(p, n); }
// What TSan takes for a thread.
class StreamFiber {
 public:
  StreamFiber() = default;
  StreamFiber(const StreamFiber&) = delete;
  ~StreamFiber() { __tsan_destroy_fiber(fiber_); }
  void* get() const { return fiber_; }

 private:
  void* fiber_ = __tsan_create_fiber(0);
};
// Makes the calling thread pass for a fiber, without ordering anything.
class As {
 public:
  explicit As(const StreamFiber& fiber) {
    __tsan_switch_to_fiber(fiber.get(), __tsan_switch_to_fiber_no_sync);
  }
  As(const As&) = delete;
  ~As() { __tsan_switch_to_fiber(host_, __tsan_switch_to_fiber_no_sync); }

 private:
  void* host_ = __tsan_get_current_fiber();
};
#else
inline void orders_before(const void*) {}
inline void ordered_after(const void*) {}
inline void reads(const void*, std::size_t) {}
inline void writes(void*, std::size_t) {}
struct Bookkeeping {
  Bookkeeping() {}
  ~Bookkeeping() {}
};
class StreamFiber {};
struct As {
  explicit As(const StreamFiber&) {}
  ~As() {}
};
#endif
}  // namespace emu
