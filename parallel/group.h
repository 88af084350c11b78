// SPDX-License-Identifier: Apache-2.0
// The ranks that a layer talks to. Its verbs are awaited: `co_await group.all_reduce(...)`. A verb
// starts when it is called and has finished when it has been awaited; between the two the layer may
// compute something that does not need it:
//
//   auto sent = group.all_to_all(...);
//   shared_expert(...);
//   co_await sent;
//
// On a GPU a verb is enqueued by its call. On the CPU it has run when the call returns, so that
// awaiting it never suspends; unless the rank's line of verbs is open (parallel/verb_line.h): then
// it runs on the line's thread and awaiting it always suspends the innermost coroutine, whether or
// not it is done, so that what runs next does not depend on timing.
//
// A failed collective is thrown as Failure where it is awaited: the step cannot go on, and the step
// runner turns it into a Status.
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
#include "parallel/verb_call.h"
#include "parallel/verb_line.h"

namespace cohort {

// A verb that has been started. Awaited at most once; by await_resume() where no coroutine is.
class [[nodiscard]] Started {
 public:
  explicit Started(Status status) : status_(std::move(status)) {}  // and has run
  Started(VerbLine& line, int64_t number) : line_(&line), number_(number) {}

  bool await_ready() const noexcept { return line_ == nullptr; }
  void await_suspend(std::coroutine_handle<> awaiter) const noexcept { line_->suspend(awaiter); }
  void await_resume() const {
    const Status& status = line_ == nullptr ? status_ : line_->finish(number_);
    if (!status.ok()) throw Failure(status);
  }

 private:
  Status status_;
  VerbLine* line_ = nullptr;
  int64_t number_ = 0;
};

// Borrows the communicator and the line. Used by the rank's step thread alone. Tensors and lists of
// sizes that a verb is given must stay as they are until it has been awaited.
class Group {
 public:
  // Verbs run at once, and nobody keeps account.
  explicit Group(Communicator& communicator) : communicator_(&communicator) {}
  // line: may be null, which is as above; so is a group of one.
  // mark: where the step thread is; borrowed, and null where nobody knows.
  Group(Communicator& communicator, GroupKind kind, VerbLine* line, const Mark* mark = nullptr)
      : communicator_(&communicator), kind_(kind), line_(line), mark_(mark) {}

  int rank() const { return communicator_->rank(); }
  int size() const { return communicator_->size(); }

  // Whether sums are made in the order of the tree, by all_reduce; else in any order, by add_up.
  bool ordered() const { return communicator_->ordered(); }
  // Memory for what is summed (Communicator::allocate).
  Buffer allocate(Device& device, size_t bytes) { return communicator_->allocate(device, bytes); }

  // out f32 [tokens, n] = the sum of everybody's pieces f32 [pieces, tokens, n] in the order of the
  // tree.
  Started all_reduce(const TreePlan& plan, Tensor pieces, Tensor out) {
    VerbCall call = make(VerbKind::all_reduce, pieces.f32(), out.f32(), out.elements());
    call.plan = &plan;
    return start(call);
  }
  // x = the sum of everybody's x.
  Started add_up(Tensor x) {
    VerbCall call = make(VerbKind::add_up, x.data(), x.data(), x.elements());
    call.dtype = x.dtype();
    return start(call);
  }
  // bytes[r]: what group rank r contributes.
  Started all_gather(Tensor in, void* out, std::span<const int64_t> bytes) {
    VerbCall call = make(VerbKind::all_gather, in.data(), out, 0);
    call.to = bytes;
    return start(call);
  }
  // Communicator::all_to_all. in and out: one run of bytes per rank, in rank order.
  Started all_to_all(Tensor in, std::span<const int64_t> to, void* out,
                     std::span<const int64_t> from) {
    VerbCall call = make(VerbKind::all_to_all, in.data(), out, 0);
    call.to = to;
    call.from = from;
    return start(call);
  }
  Started send(const void* data, int64_t bytes, int peer) {
    VerbCall call = make(VerbKind::send, const_cast<void*>(data), nullptr, bytes);
    call.peer = peer;
    return start(call);
  }
  Started recv(void* data, int64_t bytes, int peer) {
    VerbCall call = make(VerbKind::recv, nullptr, data, bytes);
    call.peer = peer;
    return start(call);
  }

 private:
  VerbCall make(VerbKind kind, void* in, void* out, int64_t count) const {
    VerbCall call;
    call.communicator = communicator_;
    call.kind = kind;
    call.group = kind_;
    if (mark_ != nullptr) call.mark = *mark_;
    call.in = in;
    call.out = out;
    call.count = count;
    return call;
  }
  Started start(const VerbCall& call) {
    if (line_ == nullptr || size() == 1) return Started(perform(call));
    if (line_->is_open()) return Started(*line_, line_->post(call));
    return Started(line_->run(call));
  }

  Communicator* communicator_;
  GroupKind kind_ = GroupKind::tp;
  VerbLine* line_ = nullptr;
  const Mark* mark_ = nullptr;
};

}  // namespace cohort
