// SPDX-License-Identifier: Apache-2.0
// What a rank is doing, for the watchdog, heartbeats and error messages: one relaxed store per
// stage of a layer; text is made only when somebody asks.
#pragma once
#include <atomic>
#include <cstdint>
#include <string>

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
  send,
  head,
  sample,
  publish_tokens,
  launch,           // of a step on a GPU
  wait_for_device,  // for a step's end on a GPU
};

// set: by the step thread. text: by any thread.
class Where {
 public:
  void set(Operation operation, int64_t layer = kNoLayer) {
    value_.store(uint64_t(layer) << 8 | uint64_t(operation), std::memory_order_relaxed);
  }
  // "attention output and its all-reduce tp, layer 17".
  std::string text() const;

 private:
  static constexpr int64_t kNoLayer = 0xffffffff;
  std::atomic<uint64_t> value_{uint64_t(kNoLayer) << 8};
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
