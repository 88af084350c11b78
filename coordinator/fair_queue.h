// SPDX-License-Identifier: Apache-2.0
// The order in which waiting sequences get a replica: bands of priority, strictly; inside a band
// the tenant that has had the fewest tokens (virtual token counter: 1 per prompt token, 2 per
// output token; Sheng et al., "Fairness in Serving Large Language Models", OSDI 2024); inside a
// tenant, arrival. A sequence rises one band per kBandAge of waiting, so the lowest band starts
// after at most (bands - 1) * kBandAge of continuous higher load. Used by one thread.
#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>

#include "base/clock.h"

namespace cohort {

class FairQueue {
 public:
  static constexpr int kLowestBand = 4;  // priorities are clamped to [-4, 4]; lower goes first
  static constexpr Duration kBandAge = std::chrono::seconds(5);

  struct Entry {
    uint64_t sequence = 0;
    std::string tenant;
    int priority = 0;
    int64_t prompt_tokens = 0;
    TimePoint arrived{};
  };

  void push(Entry entry);
  // The next one, which stays; null if empty. The pointer holds until the queue changes.
  const Entry* peek(TimePoint now) const;
  // Takes out what peek() shows and charges its tenant for the prompt. Not on an empty queue.
  Entry pop(TimePoint now);
  bool erase(uint64_t sequence);
  // The tenant got this many output tokens.
  void charge_output(const std::string& tenant, int64_t tokens);

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }

 private:
  struct Key {
    int band;
    std::string tenant;
    auto operator<=>(const Key&) const = default;
  };
  using Lanes = std::map<Key, std::deque<Entry>>;
  Lanes::const_iterator best(TimePoint now) const;
  double counter(const std::string& tenant) const;
  void lift(const std::string& tenant);

  Lanes lanes_;  // no empty ones
  std::unordered_map<std::string, double> counters_;
  size_t size_ = 0;
};

}  // namespace cohort
