// SPDX-License-Identifier: Apache-2.0
#include "comm/round_tag.h"

#include "base/check.h"

namespace cohort {
namespace {

// FNV-1a over 64-bit values.
uint64_t mix(uint64_t hash, uint64_t value) { return (hash ^ value) * 0x100000001b3ull; }
constexpr uint64_t kHashStart = 0xcbf29ce484222325ull;

std::string place_of(const Mark& mark, PlaceText text) {
  if (text != nullptr) return text(mark.place);
  return mark.place == 0 ? "" : concat("place ", mark.place);
}

std::string more_of(const RoundTag& tag) {
  switch (tag.verb) {
    case Verb::all_reduce:
      return concat(tag.bytes, " bytes, plan ", std::hex, tag.detail);
    case Verb::all_gather:
      return concat(tag.bytes, " bytes, sizes ", std::hex, tag.detail);
    case Verb::broadcast:
      return concat(tag.bytes, " bytes, root ", tag.detail);
    case Verb::all_to_all:
    case Verb::barrier:
      break;
  }
  return "";
}

}  // namespace

const char* name_of(Verb verb) {
  switch (verb) {
    case Verb::all_reduce:
      return "all_reduce";
    case Verb::all_gather:
      return "all_gather";
    case Verb::all_to_all:
      return "all_to_all";
    case Verb::broadcast:
      return "broadcast";
    case Verb::barrier:
      return "barrier";
  }
  return "unknown verb";
}

std::string describe_verb(const char* verb, uint64_t number, const Mark& mark, PlaceText text,
                          const std::string& more) {
  std::string said = concat(verb, " ", number);
  if (mark.step != 0) said += concat(" of step ", mark.step);
  const std::string place = place_of(mark, text);
  const std::string about = place + (place.empty() || more.empty() ? "" : ", ") + more;
  return about.empty() ? said : said + " (" + about + ")";
}

std::string describe(const RoundTag& tag, PlaceText text) {
  return describe_verb(name_of(tag.verb), tag.sequence, tag.mark, text, more_of(tag));
}

std::string describe(const MessageHeader& header, PlaceText text) {
  std::string said = concat(header.message_bytes, " bytes");
  if (header.offset != 0) said += concat(" from byte ", header.offset);
  if (header.mark.step != 0) said += concat(" in step ", header.mark.step);
  const std::string place = place_of(header.mark, text);
  return place.empty() ? said : said + " (" + place + ")";
}

uint64_t hash_of(const TreePlan& plan) {
  uint64_t hash = mix(kHashStart, uint64_t(plan.units()));
  for (int r = 0; r < plan.ranks(); r++) hash = mix(hash, uint64_t(plan.first_piece(r)));
  return hash;
}

uint64_t hash_of(std::span<const int64_t> sizes) {
  uint64_t hash = kHashStart;
  for (int64_t size : sizes) hash = mix(hash, uint64_t(size));
  return hash;
}

RoundTag CollectiveCounter::next(const Mark& mark, Verb verb, int64_t bytes, uint64_t detail) {
  if (mark.step != step_) {
    step_ = mark.step;
    sequence_ = 0;
  }
  return {.mark = mark, .sequence = ++sequence_, .verb = verb, .bytes = bytes, .detail = detail};
}

}  // namespace cohort
