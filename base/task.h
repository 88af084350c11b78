// SPDX-License-Identifier: Apache-2.0
// A lazily started coroutine without a value: the forward pass of a layer. Awaiting one runs it and
// continues the awaiter when it has finished (symmetric transfer, so depth costs no stack). The
// outermost task is driven by whoever owns it: start(), then resume() whenever what it awaits has
// completed, until done(). Exceptions (a failed collective) pass from callee to awaiter and come
// out of result().
#pragma once
#include <coroutine>
#include <exception>
#include <utility>

#include "base/check.h"
#include "base/frame_pool.h"

namespace cohort {

class [[nodiscard]] Task {
 public:
  struct promise_type {
    std::coroutine_handle<> awaiter;
    std::exception_ptr error;

    static void* operator new(size_t bytes) { return take_frame(bytes); }
    static void operator delete(void* frame, size_t bytes) { release_frame(frame, bytes); }

    Task get_return_object() {
      return Task(std::coroutine_handle<promise_type>::from_promise(*this));
    }
    std::suspend_always initial_suspend() noexcept { return {}; }
    struct Final {
      bool await_ready() noexcept { return false; }
      std::coroutine_handle<> await_suspend(std::coroutine_handle<promise_type> h) noexcept {
        return h.promise().awaiter ? h.promise().awaiter : std::noop_coroutine();
      }
      void await_resume() noexcept {}
    };
    Final final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { error = std::current_exception(); }
  };

  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, {})) {}
  Task& operator=(Task&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Task() {
    if (handle_) handle_.destroy();
  }

  // As an awaitable.
  bool await_ready() const noexcept { return false; }
  std::coroutine_handle<> await_suspend(std::coroutine_handle<> awaiter) noexcept {
    handle_.promise().awaiter = awaiter;
    return handle_;
  }
  void await_resume() { result(); }

  // As the outermost task.
  void start() { handle_.resume(); }
  bool done() const { return handle_.done(); }
  void result() {
    COHORT_CHECK(handle_.done());
    if (handle_.promise().error) std::rethrow_exception(handle_.promise().error);
  }

 private:
  explicit Task(std::coroutine_handle<promise_type> handle) : handle_(handle) {}
  std::coroutine_handle<promise_type> handle_;
};

}  // namespace cohort
