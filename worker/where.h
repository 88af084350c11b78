// SPDX-License-Identifier: Apache-2.0
// What a rank is doing, for the watchdog, heartbeats, error messages and the marks of collectives:
// one relaxed store per stage of a layer; text is made only when somebody asks.
#pragma once
#include <atomic>
#include <cstdint>
#include <string>

#include "comm/communicator.h"

namespace cohort {

enum class Operation : uint8_t {
  idle,
  load,
  wait_for_tokens,
  embedding,
  receive,
  attention,
  attention_output,
  feed_forward,
  feed_forward_output,
  router,
  dispatch,
  experts,
  combine,
  experts_output,
  send,
  head,
  sample,
  publish_tokens,
  launch,           // of a step on a GPU
  wait_for_device,  // for a step's end on a GPU
};

// Is told of every change; on the step thread.
class WhereListener {
 public:
  virtual ~WhereListener() = default;
  virtual void moved(uint64_t word, int lane) = 0;
};

// text(), word: by any thread; everything else that is not static by the step thread.
class Where {
 public:
  static constexpr int64_t kNoLayer = 0xffffffff;

  // What follows is of this step.
  void begin_step(uint64_t step) { mark_.step = step; }

  void set(Operation operation, int64_t layer = kNoLayer) {
    restore(uint64_t(layer) << 8 | uint64_t(operation), lane_);
  }
  // "attention output and its all-reduce tp, layer 17".
  std::string text() const { return text(word()); }

  // All of it as a number: what one micro-batch is doing while another one runs.
  uint64_t word() const { return value_.load(std::memory_order_relaxed); }
  // lane: whose word it is; stays until the next call.
  void restore(uint64_t word, int lane) {
    lane_ = lane;
    value_.store(word, std::memory_order_relaxed);
    mark_.place = word | uint64_t(lane) << kLaneShift;
    if (listener_ != nullptr) listener_->moved(word, lane);
  }
  static Operation operation(uint64_t word) { return Operation(word & 255); }
  static int64_t layer(uint64_t word) { return int64_t(word >> 8); }
  static std::string text(uint64_t word);

  // The step and what is done in it, for groups: the same on all ranks that call a verb together.
  const Mark& mark() const { return mark_; }
  // "attention, layer 17, micro-batch 2"; nothing of a mark that nobody has set.
  static std::string text_of_place(uint64_t place);

  // Rises as a step goes through the layers of its stage.
  static int64_t order(uint64_t word);

  void listen(WhereListener* listener) { listener_ = listener; }  // borrowed; may be null

 private:
  static constexpr int kLaneShift = 40;  // above operation and layer

  std::atomic<uint64_t> value_{uint64_t(kNoLayer) << 8};
  int lane_ = 0;  // the step thread's, as what follows
  Mark mark_;
  WhereListener* listener_ = nullptr;
};

// Where a row of the step first held NaN or infinity; travels between stages as an int32.
namespace row_error {
inline constexpr int32_t kNone = -1;
inline constexpr int32_t kEmbedding = 0;
inline int32_t attention(int64_t layer) { return int32_t(1 + 2 * layer); }
inline int32_t feed_forward(int64_t layer) { return int32_t(2 + 2 * layer); }
// "layer 7, attention: value is not finite"
std::string text(int32_t code);
}  // namespace row_error

}  // namespace cohort
