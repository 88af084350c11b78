// SPDX-License-Identifier: Apache-2.0
// The ranks that a layer talks to. Its verbs are awaited: `co_await group.all_reduce(...)`. On the
// CPU a verb has finished when its call returns, on a GPU it has been enqueued, so that awaiting it
// never suspends; the layers are written as if it could. A failed collective is thrown as Failure
// where it is awaited: the step cannot go on, and the step runner turns it into a Status.
#pragma once
#include <coroutine>
#include <cstdint>
#include <span>
#include <utility>

#include "base/failure.h"
#include "base/status.h"
#include "base/tensor.h"
#include "base/unit_tree.h"
#include "comm/communicator.h"

namespace cohort {

// A verb that has run.
class [[nodiscard]] Completed {
 public:
  explicit Completed(Status status) : status_(std::move(status)) {}
  bool await_ready() const noexcept { return true; }
  void await_suspend(std::coroutine_handle<>) const noexcept {}
  void await_resume() const {
    if (!status_.ok()) throw Failure(status_);
  }

 private:
  Status status_;
};

// Borrows the communicator. Used by the rank's step thread alone.
class Group {
 public:
  explicit Group(Communicator& communicator) : communicator_(&communicator) {}

  int rank() const { return communicator_->rank(); }
  int size() const { return communicator_->size(); }

  // Whether sums are made in the order of the tree, by all_reduce; else in any order, by add_up.
  bool ordered() const { return communicator_->ordered(); }
  // Memory for what is summed (Communicator::allocate).
  Buffer allocate(Device& device, size_t bytes) { return communicator_->allocate(device, bytes); }

  // out f32 [tokens, n] = the sum of everybody's pieces f32 [pieces, tokens, n] in the order of the
  // tree.
  Completed all_reduce(const TreePlan& plan, Tensor pieces, Tensor out) {
    return Completed(communicator_->all_reduce(plan, pieces.f32(), out.f32(), out.elements()));
  }
  // x = the sum of everybody's x.
  Completed add_up(Tensor x) {
    return Completed(communicator_->add_up(x.data(), x.data(), x.elements(), x.dtype()));
  }
  // bytes[r]: what group rank r contributes.
  Completed all_gather(Tensor in, void* out, std::span<const int64_t> bytes) {
    return Completed(communicator_->all_gather(in.data(), out, bytes));
  }
  // Communicator::all_to_all. in and out: one run of bytes per rank, in rank order.
  Completed all_to_all(Tensor in, std::span<const int64_t> to, void* out,
                       std::span<const int64_t> from) {
    return Completed(communicator_->all_to_all(in.data(), to, out, from));
  }
  Completed send(const void* data, int64_t bytes, int peer) {
    return Completed(communicator_->send(data, bytes, peer));
  }
  Completed recv(void* data, int64_t bytes, int peer) {
    return Completed(communicator_->recv(data, bytes, peer));
  }

 private:
  Communicator* communicator_;
};

}  // namespace cohort
