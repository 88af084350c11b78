// SPDX-License-Identifier: Apache-2.0
#include "coordinator/request_service.h"

#include <algorithm>

#include "base/log.h"
#include "coordinator/chat_input.h"

namespace cohort {

namespace {

constexpr Duration kTick = std::chrono::milliseconds(50);
constexpr Duration kCheckEvery = std::chrono::milliseconds(20);
constexpr size_t kEncodeQueue = 4096;

uint64_t random_id() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

// Text costs about a token per 3 bytes until it is encoded.
int64_t estimated_tokens(const Prompt& prompt) {
  if (const auto* text = std::get_if<std::string>(&prompt))
    return static_cast<int64_t>(text->size() / 3 + 1);
  return static_cast<int64_t>(std::get<1>(prompt).size());
}

std::vector<TokenId> end_tokens_of(const SamplingOptions& options, const Tokenizer& tokenizer) {
  std::vector<TokenId> ends = options.stop_token_ids;
  if (!options.ignore_eos)
    ends.insert(ends.end(), tokenizer.end_tokens().begin(), tokenizer.end_tokens().end());
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  return ends;
}

}  // namespace

RequestService::RequestService(std::shared_ptr<const ServedModel> model,
                               const ServiceOptions& options, Announce announce)
    : model_(std::move(model)),
      options_(options),
      announce_(std::move(announce)),
      admission_(options.admission),
      metrics_(model_->name),
      // Ids of two incarnations of the coordinator must not meet in a leader.
      next_id_(random_id() >> 16 << 8),
      max_context_(model_->max_context),
      replicas_(options.replicas),
      random_(random_id()),
      had_replica_(std::chrono::steady_clock::now()),
      epoch_(random_id()),
      pool_(options.encode_threads, kEncodeQueue),
      loop_([this] { round(); }, kTick) {
  loop_.start();
}

RequestService::~RequestService() { stop(); }

void RequestService::stop() {
  admission_.close();
  pool_.stop();
  loop_.post([this] {
    stopped_ = true;
    std::vector<uint64_t> open;
    for (const auto& [id, request] : journal_.requests) open.push_back(id);
    for (const uint64_t id : open)
      fail(id, {Code::kUnavailable, "the server is shutting down", {}, 5, false}, Outcome::failed);
  });
  loop_.stop();
}

std::optional<Failure> RequestService::check_model(const std::string& name) const {
  if (name.empty() || name == model_->name) return {};
  return Failure{
      Code::kNotFound,
      concat("the model '", name, "' does not exist; this server has '", model_->name, "'"),
      "model",
      {},
      true};
}

AdmissionCost RequestService::cost_of(const GenerateRequest& request) const {
  AdmissionCost cost{request.tenant, request.sequences(), request.sequences(), 0};
  if (request.chat) {
    for (const auto& message : request.chat->messages) {
      const auto content = message.find("content");
      if (content != message.end() && content->is_string())
        cost.queued_tokens += estimated_tokens(content->get_ref<const std::string&>());
    }
  }
  for (const Prompt& prompt : request.prompts) cost.queued_tokens += estimated_tokens(prompt);
  cost.queued_tokens *= request.n;
  return cost;
}

uint64_t RequestService::submit(GenerateRequest request, std::shared_ptr<ResponseSink> sink) {
  const uint64_t id = next_id_.fetch_add(1);
  std::optional<Failure> refusal = check_model(request.model);
  const AdmissionCost cost = cost_of(request);
  if (!refusal) refusal = admission_.enter(cost);
  if (refusal) {
    metrics_.request_done(Outcome::rejected, 0);
    sink->failed(*refusal);
    return id;
  }
  auto open = std::make_unique<OpenRequest>();
  open->id = id;
  open->sink = sink;
  open->arrived = std::chrono::steady_clock::now();
  if (request.timeout) open->deadline = open->arrived + *request.timeout;
  open->end_tokens = end_tokens_of(request.sampling, *model_->tokenizer);
  open->admitted_sequences = cost.sequences;
  open->queued_sequences = cost.queued_sequences;
  open->queued_tokens = cost.queued_tokens;
  open->prompt_field = request.chat ? "messages" : "prompt";
  auto input = std::make_shared<GenerateRequest>(request);
  request.prompts.clear();
  request.chat.reset();
  open->request = std::move(request);
  // std::function wants to be copyable.
  loop_.post([this, shared = std::make_shared<std::unique_ptr<OpenRequest>>(std::move(open))] {
    open_request(std::move(*shared));
  });
  const bool posted = pool_.post([this, id, input] {
    auto prompts = encode_prompts(*input, *model_);
    loop_.post([this, id, prompts = std::move(prompts)] { encoded(id, prompts); });
  });
  if (!posted)
    loop_.post([this, id] { encoded(id, unavailable("too many requests wait for encoding")); });
  return id;
}

void RequestService::cancel(uint64_t id) {
  loop_.post([this, id] {
    OpenRequest* request = journal_.request(id);
    if (!request) return;
    metrics_.request_done(Outcome::cancelled, 0);
    drop(*request);
  });
}

void RequestService::open_request(std::unique_ptr<OpenRequest> request) {
  const uint64_t id = request->id;
  journal_.requests[id] = std::move(request);
  if (stopped_)
    fail(id, {Code::kUnavailable, "the server is shutting down", {}, 5, false}, Outcome::failed);
}

void RequestService::encoded(uint64_t id, Result<std::vector<TokenList>> prompts) {
  OpenRequest* request = journal_.request(id);
  if (!request) return;  // cancelled meanwhile
  std::optional<Failure> refusal;
  if (!prompts.ok()) {
    refusal = Failure{prompts.status().code(), prompts.status().message(), {}, {}, true};
    if (prompts.status().code() == Code::kUnavailable)
      *refusal = {Code::kUnavailable, prompts.status().message(), {}, 1, false};
  } else {
    refusal = check_prompts(*request, *prompts);
    if (!refusal) refusal = check_deadline_is_possible(*request, *prompts->front());
  }
  if (refusal) return fail(id, *refusal, Outcome::rejected);
  enqueue(*request, *prompts);
  request->sink->accepted(*std::move(prompts));
}

std::optional<Failure> RequestService::check_prompts(const OpenRequest& request,
                                                     const std::vector<TokenList>& prompts) const {
  const int context = max_context_.load();
  for (const TokenList& prompt : prompts) {
    if (prompt->empty())
      return invalid_request("the prompt is empty: give at least one token", request.prompt_field);
    const int length = static_cast<int>(std::min<size_t>(prompt->size(), INT32_MAX));
    const SamplingOptions& sampling = request.request.sampling;
    const int room = context - length;
    if (room < 1)
      return invalid_request(
          concat("the prompt has ", length, " tokens, and the context of ", context,
                 " tokens has to hold it and at least one more: shorten the prompt"),
          request.prompt_field);
    const auto too_many = [&](const char* field, int tokens) {
      return invalid_request(
          concat("the prompt has ", length, " tokens and ", field, " is ", tokens,
                 ": together more than the context of ", context, " tokens"),
          field);
    };
    if (sampling.min_tokens > room) return too_many("min_tokens", sampling.min_tokens);
    if (sampling.max_tokens.value_or(1) > room) return too_many("max_tokens", *sampling.max_tokens);
  }
  return {};
}

std::optional<Failure> RequestService::check_deadline_is_possible(
    const OpenRequest& request, const std::vector<TokenId>& prompt) const {
  if (!request.deadline) return {};
  double least = 0;
  bool any = false;
  for (const auto& [name, record] : replicas_.all()) {
    if (record.state != ReplicaState::ready || record.load.token_seconds() <= 0) continue;
    const double wait = predicted_wait(record.candidate(), static_cast<int64_t>(prompt.size()));
    least = any ? std::min(least, wait) : wait;
    any = true;
  }
  const double left = seconds(*request.deadline - std::chrono::steady_clock::now());
  if (any && least > left)
    return Failure{Code::kDeadlineExceeded,
                   concat("the first token would come after about ", least, " s, and ", left,
                          " s are left of the deadline"),
                   {},
                   {},
                   true};
  return {};
}

void RequestService::enqueue(OpenRequest& request, const std::vector<TokenList>& prompts) {
  const TimePoint now = std::chrono::steady_clock::now();
  const SamplingOptions& sampling = request.request.sampling;
  const uint64_t seed = sampling.seed ? *sampling.seed : random_();
  int64_t tokens = 0;
  for (size_t p = 0; p < prompts.size(); ++p) {
    const TokenList& prompt = prompts[p];
    const auto chain = std::make_shared<const std::vector<uint64_t>>(
        block_chain(*prompt, request.request.cache_salt));
    const int room = max_context_.load() - static_cast<int>(prompt->size());
    request.usage.prompt_tokens += static_cast<int64_t>(prompt->size());
    for (int i = 0; i < request.request.n; ++i) {
      const int choice = static_cast<int>(p) * request.request.n + i;
      auto sequence = std::make_unique<Sequence>(
          Sequence{.id = next_id_.fetch_add(1),
                   .request = request.id,
                   .choice = choice,
                   .prompt = prompt,
                   .chain = chain,
                   .max_tokens = sampling.max_tokens.value_or(room),
                   // Odd multiplier: choices of one request never share a seed.
                   .seed = seed + 0x9e3779b97f4a7c15u * static_cast<uint64_t>(choice),
                   .output = {},
                   .text = TextStream(*model_->tokenizer, sampling, prompt->back()),
                   .replica_name = {},
                   .waiting_since = now,
                   .last_token = now});
      queue_.push({sequence->id, request.request.tenant, request.request.priority,
                   static_cast<int64_t>(prompt->size()), now});
      tokens += static_cast<int64_t>(prompt->size());
      request.sequences.push_back(sequence->id);
      journal_.sequences[sequence->id] = std::move(sequence);
    }
  }
  // From the estimate to the count.
  admission_.queued_changed(0, tokens - request.queued_tokens);
  request.queued_tokens = tokens;
  request.tokens_per_sequence = tokens / std::max<int64_t>(1, request.queued_sequences);
}

void RequestService::round() {
  const TimePoint now = std::chrono::steady_clock::now();
  if (now - last_check_ >= kCheckEvery) {
    last_check_ = now;
    check_replicas(now);
    check_deadlines(now);
    check_waiting(now);
  }
  dispatch(now);
  publish(now);
}

}  // namespace cohort
