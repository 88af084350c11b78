// SPDX-License-Identifier: Apache-2.0
// What travels with every round of a collective and every message, so that ranks that do not run
// the same thing notice it and can say what the other side is in. Plain bytes: it lies in shared
// memory and in messages.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>

#include "comm/communicator.h"

namespace cohort {

enum class Verb : uint32_t { all_reduce = 1, all_gather, all_to_all, broadcast, barrier };
const char* name_of(Verb verb);

// Equal on all members in every round.
struct RoundTag {
  Mark mark;
  uint32_t sequence = 0;  // number of the collective within its step, from 1
  Verb verb = Verb::barrier;
  int64_t bytes = 0;    // size of the collective, where all members know it
  uint64_t detail = 0;  // root, or a hash of the sizes or of the plan
  uint32_t part = 0;    // of a collective that is made of others (comm/hierarchical.h)
  uint32_t unused = 0;
  friend bool operator==(const RoundTag&, const RoundTag&) = default;
};
static_assert(std::is_trivially_copyable_v<RoundTag>);

// "all_reduce 7 of step 41 (attention, layer 3, 2304 bytes)". text may be null.
std::string describe(const RoundTag& tag, PlaceText text);
// The same for verbs that have no tag.
std::string describe_verb(const char* verb, uint64_t number, const Mark& mark, PlaceText text,
                          const std::string& more);

// In front of every chunk of send and recv.
struct MessageHeader {
  int64_t message_bytes = 0;
  int64_t offset = 0;  // of this chunk within the message
  Mark mark;           // the sender's, for texts
};
static_assert(std::is_trivially_copyable_v<MessageHeader>);
// "300 bytes in step 41 (send, layer 3)", and "from byte 65536" where a message has been cut short.
std::string describe(const MessageHeader& header, PlaceText text);

// What a tag's detail holds.
uint64_t hash_of(const TreePlan& plan);
uint64_t hash_of(std::span<const int64_t> sizes);

// Numbers the collectives of a group, anew in each step.
class CollectiveCounter {
 public:
  RoundTag next(const Mark& mark, Verb verb, int64_t bytes, uint64_t detail);

 private:
  uint64_t step_ = 0;
  uint32_t sequence_ = 0;
};

}  // namespace cohort
