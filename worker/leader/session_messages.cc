// SPDX-License-Identifier: Apache-2.0
#include "worker/leader/session_messages.h"

namespace cohort {

replica::v1::Token to_wire(const SampledToken& sampled) {
  replica::v1::Token token;
  token.set_id(sampled.token);
  token.set_logprob(sampled.logprob);
  for (const TokenLogprob& top : sampled.top) {
    auto* logprob = token.add_top();
    logprob->set_token(top.token);
    logprob->set_logprob(top.logprob);
  }
  return token;
}

replica::v1::FinishReason to_wire(FinishReason reason) {
  switch (reason) {
    case FinishReason::stop:
      return replica::v1::FINISH_STOP;
    case FinishReason::length:
      return replica::v1::FINISH_LENGTH;
    case FinishReason::cancelled:
      return replica::v1::FINISH_CANCELLED;
    case FinishReason::error:
      return replica::v1::FINISH_ERROR;
  }
  return replica::v1::FINISH_UNSPECIFIED;
}

replica::v1::RankInfo to_wire(const RankState& rank) {
  replica::v1::RankInfo info;
  info.set_rank(rank.rank);
  info.set_host(rank.host);
  info.set_pid(rank.pid);
  info.set_tp(rank.tp);
  info.set_pp(rank.pp);
  info.set_dp(rank.dp);
  info.set_device(rank.device);
  info.set_last_progress_ms(rank.last_progress.count());
  info.set_where(rank.where);
  info.set_compute_seconds(rank.work.compute_seconds);
  info.set_communication_seconds(rank.work.communication_seconds);
  info.set_hidden_communication_seconds(rank.work.hidden_communication_seconds);
  info.set_idle_seconds(rank.work.idle_seconds);
  info.set_bytes_sent(rank.work.bytes_sent);
  return info;
}

replica::v1::Hello to_wire(const ReplicaDescription& description) {
  replica::v1::Hello hello;
  hello.set_name(description.name);
  hello.set_epoch(description.epoch);
  hello.set_model_fingerprint(description.model_fingerprint);
  hello.set_model_path(description.model_path);
  hello.mutable_layout()->set_tp(description.tp);
  hello.mutable_layout()->set_pp(description.pp);
  for (const int share : description.shares) hello.mutable_layout()->add_shares(share);
  const StepLimits& limits = description.limits;
  hello.mutable_layout()->set_dp(limits.dp);
  hello.set_max_context(limits.max_context);
  hello.set_max_batch(all_slots(limits));
  hello.set_max_rows(limits.dp * limits.max_rows);
  hello.set_kv_blocks(int64_t{limits.dp} * limits.blocks);
  return hello;
}

replica::v1::Load to_wire(const LoadReport& report) {
  replica::v1::Load load;
  load.set_running(report.scheduler.running);
  load.set_queued(report.scheduler.waiting);
  load.set_queued_prefill_tokens(report.scheduler.queued_prefill_tokens);
  load.set_blocks_total(report.scheduler.blocks.total);
  load.set_blocks_free(report.scheduler.blocks.free);
  load.set_blocks_cached(report.scheduler.blocks.parked);
  load.set_step_seconds(report.step_seconds);
  load.set_token_seconds(report.token_seconds);
  load.set_preemptions(report.scheduler.preemptions);
  load.set_steps(report.scheduler.steps);
  if (report.scheduler.groups.size() == 1) return load;
  for (const GroupLoad& part : report.scheduler.groups) {
    auto* group = load.add_groups();
    group->set_running(part.running);
    group->set_blocks_total(part.blocks.total);
    group->set_blocks_free(part.blocks.free);
    group->set_blocks_cached(part.blocks.parked);
  }
  return load;
}

replica::v1::Experts to_wire(const ExpertReport& report) {
  replica::v1::Experts experts;
  experts.set_imbalance(report.imbalance);
  experts.set_copies(report.copies);
  size_t counts = 0;
  for (const ExpertReport::Layer& layer : report.layers) {
    counts += layer.tokens.size();
    if (counts > kMostExpertCounts) break;
    auto* wire = experts.add_layers();
    wire->set_layer(layer.layer);
    wire->mutable_tokens()->Add(layer.tokens.begin(), layer.tokens.end());
  }
  return experts;
}

namespace {

SamplingParams from_wire(const replica::v1::Sampling& wire) {
  SamplingParams sampling;
  sampling.temperature = wire.temperature();
  sampling.top_k = wire.top_k();
  sampling.top_p = wire.top_p();
  sampling.min_p = wire.min_p();
  sampling.seed = wire.seed();
  sampling.frequency_penalty = wire.frequency_penalty();
  sampling.presence_penalty = wire.presence_penalty();
  sampling.repetition_penalty = wire.repetition_penalty();
  for (const auto& bias : wire.logit_bias())
    sampling.logit_bias.emplace_back(bias.token(), bias.bias());
  sampling.min_tokens = wire.min_tokens();
  sampling.end_tokens.assign(wire.end_tokens().begin(), wire.end_tokens().end());
  if (wire.has_logprobs()) sampling.logprobs = wire.logprobs();
  return sampling;
}

}  // namespace

SequenceRequest from_wire(const replica::v1::Submit& submit) {
  SequenceRequest request;
  request.id = {submit.request(), submit.attempt()};
  request.prompt.assign(submit.prompt().begin(), submit.prompt().end());
  request.output_prefix.assign(submit.output_prefix().begin(), submit.output_prefix().end());
  request.sampling = from_wire(submit.sampling());
  request.max_tokens = submit.sampling().max_tokens();
  request.salt = submit.cache_salt();
  return request;
}

}  // namespace cohort
