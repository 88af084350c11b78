// SPDX-License-Identifier: Apache-2.0
// Every open request and its sequences: prompt, parameters, tokens taken so far, which attempt runs
// where. Enough to go on elsewhere when a replica dies. Used by the core thread.
#pragma once
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "comm/wire/replica.pb.h"
#include "coordinator/request.h"
#include "coordinator/response_sink.h"
#include "coordinator/text_stream.h"

namespace cohort {

// What was learnt of a token, until it is certain that no stop string cuts the token off.
struct HeldRecord {
  size_t begin = 0;  // of the token, in bytes of the text
  TokenRecord record;
};

struct Sequence {
  uint64_t id = 0;
  uint64_t request = 0;
  int choice = 0;
  TokenList prompt;
  std::shared_ptr<const std::vector<uint64_t>> chain;  // block hashes of the prompt
  int max_tokens = 0;                                  // of output, over all attempts
  uint64_t seed = 0;

  std::vector<TokenId> output;  // taken; its size is the next index
  TextStream text;
  std::deque<HeldRecord> held{};
  uint32_t attempt = 0;      // of the current or last submission
  uint32_t turned_away = 0;  // attempts that a leaving replica did not take on
  int crashes = 0;           // of replicas that had it
  std::string replica_name;  // where it runs; "" while it waits
  size_t acknowledged = 0;   // tokens
  int64_t cached_tokens = 0;
  TimePoint waiting_since{};
  TimePoint last_token{};

  int64_t prefill_tokens() const { return static_cast<int64_t>(prompt->size() + output.size()); }
};

struct OpenRequest {
  uint64_t id = 0;
  std::shared_ptr<ResponseSink> sink;
  GenerateRequest request;   // without prompts
  std::string prompt_field;  // what the client calls the prompt
  std::vector<TokenId> end_tokens;
  std::vector<uint64_t> sequences;  // open ones
  int admitted_sequences = 0;
  int queued_sequences = 0;   // what admission still counts as waiting
  int64_t queued_tokens = 0;  // likewise
  int64_t tokens_per_sequence = 0;
  TimePoint arrived{};
  std::optional<TimePoint> deadline;
  bool started = false;  // something has been put out
  Usage usage;
};

struct Journal {
  std::unordered_map<uint64_t, std::unique_ptr<OpenRequest>> requests;
  std::unordered_map<uint64_t, std::unique_ptr<Sequence>> sequences;

  OpenRequest* request(uint64_t id) const {
    const auto at = requests.find(id);
    return at == requests.end() ? nullptr : at->second.get();
  }
  Sequence* sequence(uint64_t id) const {
    const auto at = sequences.find(id);
    return at == sequences.end() ? nullptr : at->second.get();
  }
};

// The message that (re)starts a sequence.
replica::v1::Submit submit_message(const Sequence& sequence, const OpenRequest& request,
                                   uint64_t number);

}  // namespace cohort
