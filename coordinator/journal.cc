// SPDX-License-Identifier: Apache-2.0
#include "coordinator/journal.h"

namespace cohort {

static void fill_sampling(const Sequence& sequence, const OpenRequest& request,
                          replica::v1::Sampling& out) {
  const SamplingOptions& s = request.request.sampling;
  out.set_temperature(s.temperature);
  out.set_top_k(s.top_k);
  out.set_top_p(s.top_p);
  out.set_min_p(s.min_p);
  out.set_seed(sequence.seed);
  out.set_frequency_penalty(s.frequency_penalty);
  out.set_presence_penalty(s.presence_penalty);
  out.set_repetition_penalty(s.repetition_penalty);
  for (const auto& [token, bias] : s.logit_bias) {
    auto* entry = out.add_logit_bias();
    entry->set_token(token);
    entry->set_bias(bias);
  }
  out.set_max_tokens(sequence.max_tokens);
  out.set_min_tokens(s.min_tokens);
  out.mutable_end_tokens()->Assign(request.end_tokens.begin(), request.end_tokens.end());
  if (s.logprobs) out.set_logprobs(*s.logprobs);
}

replica::v1::Submit submit_message(const Sequence& sequence, const OpenRequest& request,
                                   uint64_t number) {
  replica::v1::Submit out;
  out.set_request(sequence.id);
  out.set_attempt(sequence.attempt);
  out.set_sequence_number(number);
  out.mutable_prompt()->Assign(sequence.prompt->begin(), sequence.prompt->end());
  out.mutable_output_prefix()->Assign(sequence.output.begin(), sequence.output.end());
  fill_sampling(sequence, request, *out.mutable_sampling());
  out.set_priority(request.request.priority);
  out.set_cache_salt(request.request.cache_salt);
  return out;
}

}  // namespace cohort
