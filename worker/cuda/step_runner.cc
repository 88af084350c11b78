// SPDX-License-Identifier: Apache-2.0
// A step on a GPU: launch enqueues all of it and returns; collect waits for its end (docs/step.md
// section 9).
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>
#include <utility>

#include "base/device_cuda.h"
#include "base/log.h"
#include "worker/cuda/memory_watch.h"
#include "worker/cuda/outbox.h"
#include "worker/cuda/step_inputs.h"
#include "worker/cuda/step_outputs.h"
#include "worker/cuda/token_route.h"
#include "worker/slot_table.h"
#include "worker/step_runner.h"

namespace cohort {
namespace {

// Stands in the slot table for a token that only the GPUs know.
constexpr int32_t kOnDevice = -1;
// Sends of activations that may be on their way.
constexpr int kOutgoing = 2;
// How long a runner that ends waits for its device.
constexpr Duration kFarewell = std::chrono::seconds(2);

StageParts with_mark(StageParts parts, const Where& where) {
  parts.mark = &where.mark();
  return parts;
}

// What captured steps are told apart by.
using GraphKey = std::tuple<int64_t, bool, bool, bool, bool>;
GraphKey key_of(const StepShape& s) {
  return {s.rows, s.features.adjust, s.features.draw, s.features.truncate, s.features.logprobs};
}

class CudaStepRunner final : public StepRunner {
 public:
  explicit CudaStepRunner(const StageParts& parts);
  ~CudaStepRunner() override { settle(); }

  int depth() const override { return limits_.in_flight; }
  Status launch(const StepPlan& plan) override;
  bool finished() const override;
  Result<std::optional<StepResult>> collect(Duration patience) override;
  void abort(const Status& why) override;

 private:
  struct Launched {
    uint64_t step = 0;
    int flight = 0;
    TimePoint at{};
  };

  void enqueue(const StepPlan& plan, const StepShape& shape, int flight);
  void upload_new(const StepPlan& plan, int flight);
  void append_placeholders(const StepPlan& plan);
  // Embedding to sampled tokens, as far as this stage goes: what can be captured.
  void run_body(const StepShape& shape);
  void body(const StepShape& shape);
  Task forward(Step& step, const StepShape& shape, Tensor x);
  Task embed(Step& step, Tensor x);
  void receive(int64_t rows);
  void send(int64_t rows);
  void warm_up();
  void settle() noexcept;
  Status wait_for(int flight, Duration patience) const;
  Status stopped() const;
  Status whose_fault(const Status& ended) const;

  int64_t message_bytes(int64_t rows) const {
    return rows * int64_t(size_t(stage_.hidden()) * sizeof(float) + sizeof(int32_t));
  }
  Tensor residual(int64_t rows) const {
    return Tensor(x_.data(), DType::f32, {rows, stage_.hidden()});
  }
  Tensor row_errors(int64_t rows) const {
    return Tensor(x_.as<float>() + rows * stage_.hidden(), DType::i32, {rows});
  }

  Stream& stream_;
  CudaDevice& device_;
  const StepLimits limits_;
  const bool graphs_;
  Stage stage_;
  Communicator &tp_, &pp_communicator_;
  Group pp_;
  SlotTable slots_;
  cuda::TokenTable table_;
  Buffer ids_;  // i32 [max_rows]
  Buffer x_;    // the residual stream: f32 [tokens, hidden], then i32 [tokens] error codes
  std::optional<VocabularyEmbedding> embedding_;  // first stage
  std::optional<Head> head_;                      // last stage, as those below
  std::optional<cuda::Sampler> sampler_;
  Buffer logits_;                 // f32 [most_decoding, vocab]
  std::optional<Outbox> outbox_;  // stages with a next one
  StepInputs inputs_;
  StepOutputs outputs_;
  DeviceTokenRoute route_;
  std::vector<Buffer> new_tokens_;  // per flight, host: tokens of new sequences
  std::map<GraphKey, CudaGraph> captured_;
  MemoryWatch memory_watch_;
  std::deque<Launched> launched_;
  int next_flight_ = 0;
  TimePoint last_end_{};
  mutable std::mutex mutex_;
  Status aborted_;  // guarded by mutex_
};

CudaStepRunner::CudaStepRunner(const StageParts& parts)
    : stream_(parts.stream),
      device_(static_cast<CudaDevice&>(parts.stream.device())),
      limits_(parts.limits),
      graphs_(parts.graphs),
      stage_(with_mark(parts, where_)),
      tp_(parts.tp),
      pp_communicator_(parts.pp),
      pp_(parts.pp, GroupKind::pp, nullptr, &where_.mark()),
      slots_(parts.limits, parts.config.vocab),
      table_(parts.stream, parts.limits.max_slots, parts.limits.max_context + 1),
      ids_(device_.allocate(size_t(parts.limits.max_rows) * sizeof(int32_t))),
      x_(device_.allocate(size_t(message_bytes(parts.limits.max_rows)))),
      inputs_(device_, stage_.geometry(), parts.limits,
              stage_.last() ? &sampler_.emplace(parts.stream, table_, most_decoding(parts.limits),
                                                parts.config.vocab)
                            : nullptr,
              parts.limits.in_flight),
      outputs_(device_, parts.limits, parts.limits.in_flight),
      route_(parts.stream, Group(parts.tokens, GroupKind::tokens, nullptr, &where_.mark()), table_,
             slots_, parts.limits.max_slots, parts.limits.in_flight),
      new_tokens_(size_t(parts.limits.in_flight)),
      memory_watch_(device_, log_warning) {
  if (stage_.first()) embedding_.emplace(stage_.make_embedding(parts));
  if (stage_.last()) {
    const int64_t rows = most_decoding(limits_);
    head_.emplace(stage_.make_head(parts, rows));
    logits_ = device_.allocate(size_t(rows * head_->vocab()) * sizeof(float));
  } else {
    outbox_.emplace(device_, device_.pipe(), kOutgoing, size_t(message_bytes(limits_.max_rows)));
  }
  try {
    warm_up();
  } catch (...) {
    // Memory is given back now, which waits for the GPU: that must not wait for other ranks.
    const Status why = cancelled("the first step has failed");
    tp_.abort(why);
    pp_communicator_.abort(why);
    settle();
    throw;
  }
}

// A step that failed half way has left copies behind, which need their page-locked memory. Where
// they do not end, somebody has not called abort.
void CudaStepRunner::settle() noexcept {
  try {
    device_.use();
    device_.order(device_.copy(), device_.compute());
    CudaEvent end(device_);
    end.record(device_.compute());
    if (const Status ended = end.wait(kFarewell); !ended.ok()) log_debug(ended.message());
  } catch (const Failure& failure) {
    log_debug(failure.status().message());
  }
}

// One step of padding of each size: the libraries choose their algorithms, scratch memory grows to
// what it must be, and decode steps are captured.
void CudaStepRunner::warm_up() {
  const int64_t most = most_decoding(limits_);
  const auto run = [&](const StepShape& shape) {
    inputs_.send_padding(shape, 0);
    body(shape);
    if (graphs_ && shape.decode)
      captured_[key_of(shape)] = CudaGraph::capture(device_, [&] { body(shape); });
    device_.order(device_.copy(), device_.compute());
    outputs_.mark_end(0);
    const Status ended =
        outputs_.end(0).wait(std::chrono::minutes(5), [this] { return stopped(); });
    if (!ended.ok()) throw Failure(ended.annotate("the first step on the GPU"));
  };
  run({.decode = false, .rows = limits_.max_rows, .sampled = most, .features = {}});
  for (int64_t rows = 1;; rows = bucket_of(rows + 1, most)) {
    run({.decode = true, .rows = rows, .sampled = rows, .features = {}});
    if (rows == most) break;
  }
  const DeviceMemory memory = device_.memory();
  log_info(concat("ready with ", captured_.size(), " captured steps; ", memory.free >> 20, " of ",
                  memory.total >> 20, " MiB of the GPU are free"));
}

Status CudaStepRunner::launch(const StepPlan& plan) {
  COHORT_CHECK_LT(int(launched_.size()), depth());
  where_.begin_step(plan.step);
  COHORT_RETURN_IF_ERROR(slots_.apply(plan));
  where_.set(Operation::launch);
  const int flight = next_flight_;
  next_flight_ = (next_flight_ + 1) % depth();
  try {
    device_.use();
    if (plan.entries.empty()) {
      outputs_.mark_end(flight);
    } else {
      COHORT_ASSIGN_OR_RETURN(const StepShape shape, inputs_.shape_of(plan, slots_));
      enqueue(plan, shape, flight);
    }
  } catch (const Failure& failure) {
    return failure.status().annotate(
        concat("step ", plan.step, " on ", device_.name(), ", ", where_.text()));
  }
  launched_.push_back({plan.step, flight, std::chrono::steady_clock::now()});
  return {};
}

void CudaStepRunner::enqueue(const StepPlan& plan, const StepShape& shape, int flight) {
  inputs_.send(plan, slots_, shape, flight);
  upload_new(plan, flight);
  where_.set(Operation::wait_for_tokens);
  route_.before_step(plan, flight);
  if (!stage_.first()) receive(shape.rows);
  run_body(shape);
  if (!stage_.last()) send(shape.rows);
  int64_t sampled = 0;
  for (const StepEntry& entry : plan.entries) sampled += entry.sample;
  where_.set(Operation::publish_tokens);
  route_.publish(outputs_.sampled(), stage_.last() ? sampled : 0);
  if (stage_.samples())
    outputs_.fetch(plan, row_errors(shape.rows), flight);
  else
    outputs_.mark_end(flight);
  append_placeholders(plan);
}

// What new sequences come with goes to the table in one piece each.
void CudaStepRunner::upload_new(const StepPlan& plan, int flight) {
  size_t tokens = 0;
  for (const StepEntry& entry : plan.entries)
    if (entry.sequence) tokens += entry.sequence->tokens.size();
  if (tokens == 0) return;
  Buffer& host = new_tokens_[size_t(flight)];
  if (host.size() < tokens * sizeof(int32_t))
    host = device_.allocate_pinned(2 * tokens * sizeof(int32_t));
  int32_t* at = host.as<int32_t>();
  for (const StepEntry& entry : plan.entries) {
    if (!entry.sequence) continue;
    const std::vector<int32_t>& from = entry.sequence->tokens;
    std::copy(from.begin(), from.end(), at);
    cuda_check(
        cudaMemcpyAsync(table_.data() + int64_t(entry.slot) * table_.positions(), at,
                        from.size() * sizeof(int32_t), cudaMemcpyHostToDevice, device_.compute()),
        "cudaMemcpyAsync of a new sequence's tokens");
    at += from.size();
  }
}

void CudaStepRunner::append_placeholders(const StepPlan& plan) {
  for (const StepEntry& entry : plan.entries)
    if (entry.sample) slots_.append(slots_.ref(entry.slot), kOnDevice);
}

void CudaStepRunner::run_body(const StepShape& shape) {
  if (!graphs_ || !shape.decode) return body(shape);
  CudaGraph& graph = captured_[key_of(shape)];
  if (graph) {
    where_.set(Operation::launch);
    return graph.launch(device_.compute());
  }
  // New to this rank: run it once, so that whatever it needs is there, and capture it for the next.
  body(shape);
  graph = CudaGraph::capture(device_, [&] { body(shape); });
}

void CudaStepRunner::body(const StepShape& shape) {
  const AttentionBatch batch(stage_.geometry(), inputs_.entries(), shape.rows, inputs_.batch());
  // Rows of padding choose experts like others; nobody reads what becomes of them.
  const int64_t group_rows[] = {shape.rows};
  Step step{stream_, stage_.work(), where_, batch, shape.rows, row_errors(shape.rows), group_rows};
  Task task = forward(step, shape, residual(shape.rows));
  task.start();
  task.result();
}

Task CudaStepRunner::forward(Step& step, const StepShape& shape, Tensor x) {
  if (embedding_) co_await embed(step, x);
  co_await stage_.forward(step, x);
  if (!head_ || shape.sampled == 0) co_return;
  const Tensor logits(logits_.data(), DType::f32, {shape.sampled, head_->vocab()});
  const Tensor rows = inputs_.sampled_rows(shape.sampled);
  where_.set(Operation::head);
  co_await head_->forward(step, logits, x, rows);
  where_.set(Operation::sample);
  sampler_->enqueue(stream_, shape.features, logits, inputs_.sampler(), outputs_.sampled());
}

Task CudaStepRunner::embed(Step& step, Tensor x) {
  where_.set(Operation::embedding);
  const Tensor ids(ids_.data(), DType::i32, {step.rows});
  cuda::look_up_tokens(stream_, table_, ids, inputs_.slots(step.rows),
                       inputs_.positions(step.rows));
  co_await embedding_->forward(stream_, step.work.linear, x, ids);
  static_assert(row_error::kNone == -1);  // all bits set
  cuda_check(cudaMemsetAsync(step.row_errors.data(), 0xff, size_t(step.row_errors.bytes()),
                             device_.compute()),
             "cudaMemsetAsync of error codes");
  ops::find_not_finite(stream_, step.row_errors, x, row_error::kEmbedding);
}

void CudaStepRunner::receive(int64_t rows) {
  where_.set(Operation::receive);
  pp_.recv(x_.data(), message_bytes(rows), pp_.rank() - 1).await_resume();
}

void CudaStepRunner::send(int64_t rows) {
  where_.set(Operation::send);
  std::byte* place = outbox_->place();
  cuda_check(cudaMemcpyAsync(place, x_.data(), size_t(message_bytes(rows)),
                             cudaMemcpyDeviceToDevice, device_.compute()),
             "cudaMemcpyAsync of activations");
  pp_.send(place, message_bytes(rows), pp_.rank() + 1).await_resume();
  outbox_->sent();
}

Status CudaStepRunner::wait_for(int flight, Duration patience) const {
  try {
    device_.use();
  } catch (const Failure& failure) {
    return failure.status();
  }
  return outputs_.end(flight).wait(patience, [this] { return stopped(); });
}

bool CudaStepRunner::finished() const {
  try {
    return outputs_.end(launched_.front().flight).done() || !stopped().ok();
  } catch (const Failure&) {
    return true;  // collect tells what is wrong
  }
}

Result<std::optional<StepResult>> CudaStepRunner::collect(Duration patience) {
  COHORT_CHECK(!launched_.empty());
  const Launched oldest = launched_.front();
  where_.set(Operation::wait_for_device);
  const Status ended = wait_for(oldest.flight, patience);
  if (!ended.ok())
    return whose_fault(ended).annotate(concat("step ", oldest.step, " on ", device_.name()));
  launched_.pop_front();
  memory_watch_.step();
  const TimePoint now = std::chrono::steady_clock::now();
  const TimePoint begun = std::max(oldest.at, last_end_);
  last_end_ = now;
  if (launched_.empty()) where_.set(Operation::idle);
  if (!stage_.samples()) return std::optional<StepResult>();
  return std::optional(StepResult{.step = oldest.step,
                                  .slots = outputs_.results(oldest.flight),
                                  .compute_seconds = seconds(now - begun)});
}

// The host cannot see what a GPU waits for: only whom it may.
Status CudaStepRunner::whose_fault(const Status& ended) const {
  if (ended.code() != Code::kDeadlineExceeded || tp_.size() * pp_.size() == 1) return ended;
  return Status(ended.code(), concat(ended.message(), "; it may wait for another rank of ",
                                     tp_.size() > 1 ? tp_.name() : "",
                                     tp_.size() > 1 && pp_.size() > 1 ? ", or of " : "",
                                     pp_.size() > 1 ? pp_communicator_.name() : ""));
}

Status CudaStepRunner::stopped() const {
  {
    const std::lock_guard lock(mutex_);
    if (!aborted_.ok()) return aborted_;
  }
  COHORT_RETURN_IF_ERROR(tp_.status());
  return pp_communicator_.status();
}

void CudaStepRunner::abort(const Status& why) {
  const std::lock_guard lock(mutex_);
  if (aborted_.ok()) aborted_ = why;
}

}  // namespace

std::unique_ptr<StepRunner> make_cuda_step_runner(const StageParts& parts) {
  return std::make_unique<CudaStepRunner>(parts);
}

}  // namespace cohort
