// SPDX-License-Identifier: Apache-2.0
#include "worker/where.h"

#include "base/check.h"

namespace cohort {
namespace {

const char* describe(Operation operation) {
  switch (operation) {
    case Operation::idle:
      return "idle";
    case Operation::load:
      return "loading weights";
    case Operation::wait_for_tokens:
      return "receive of sampled tokens from the last stage";
    case Operation::embedding:
      return "embedding and its all-reduce tp";
    case Operation::receive:
      return "receive of activations from the previous stage";
    case Operation::attention:
      return "attention";
    case Operation::attention_output:
      return "attention output and its all-reduce tp";
    case Operation::feed_forward:
      return "feed-forward";
    case Operation::feed_forward_output:
      return "feed-forward output and its all-reduce tp";
    case Operation::router:
      return "choice of experts";
    case Operation::dispatch:
      return "dispatch of rows to experts, dp";
    case Operation::experts:
      return "experts";
    case Operation::combine:
      return "return of rows from experts, dp";
    case Operation::experts_output:
      return "sum of experts and its all-reduce tp";
    case Operation::send:
      return "send of activations to the next stage";
    case Operation::head:
      return "head and its all-gather tp";
    case Operation::sample:
      return "sampling";
    case Operation::publish_tokens:
      return "send of sampled tokens to the first stage";
    case Operation::launch:
      return "launch of a step on the GPU";
    case Operation::wait_for_device:
      return "wait for the GPU";
  }
  return "unknown";
}

}  // namespace

std::string Where::text(uint64_t word) {
  const std::string what = describe(operation(word));
  return layer(word) == kNoLayer ? what : concat(what, ", layer ", layer(word));
}

std::string Where::text_of_place(uint64_t place) {
  if (place == 0) return "";
  const uint64_t lane = place >> kLaneShift;
  const std::string what = text(place & ((uint64_t(1) << kLaneShift) - 1));
  return lane == 0 ? what : concat(what, ", micro-batch ", lane + 1);
}

int64_t Where::order(uint64_t word) {
  if (layer(word) != kNoLayer) return layer(word);
  return operation(word) <= Operation::receive ? -1 : kNoLayer;
}

namespace row_error {

std::string text(int32_t code) {
  if (code == kEmbedding) return "embedding: value is not finite";
  return concat("layer ", (code - 1) / 2, (code - 1) % 2 == 0 ? ", attention" : ", feed-forward",
                ": value is not finite");
}

}  // namespace row_error
}  // namespace cohort
