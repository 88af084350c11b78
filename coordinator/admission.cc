// SPDX-License-Identifier: Apache-2.0
#include "coordinator/admission.h"

namespace cohort {

std::optional<Failure> Admission::enter(const AdmissionCost& cost) {
  const std::lock_guard lock(mutex_);
  if (closed_) return Failure{Code::kUnavailable, "the server is shutting down", {}, 5, false};
  const auto tenant = tenants_.find(cost.tenant);
  const int open_of_tenant = tenant == tenants_.end() ? 0 : tenant->second;
  if (!cost.tenant.empty() && open_of_tenant + cost.sequences > limits_.tenant_sequences) {
    return Failure{Code::kResourceExhausted,
                   concat("this user has ", open_of_tenant, " sequences open and asks for ",
                          cost.sequences, " more; the limit is ", limits_.tenant_sequences),
                   {},
                   1,
                   false};
  }
  if (open_ + cost.sequences > limits_.open_sequences ||
      queued_sequences_ + cost.queued_sequences > limits_.queued_sequences) {
    return Failure{Code::kUnavailable,
                   concat("the queue is full: ", queued_sequences_, " sequences wait"),
                   {},
                   2,
                   false};
  }
  if (queued_sequences_ > 0 && queued_tokens_ + cost.queued_tokens > limits_.queued_tokens) {
    return Failure{Code::kUnavailable,
                   concat("the queue is full: ", queued_tokens_, " prompt tokens wait"),
                   {},
                   2,
                   false};
  }
  queued_sequences_ += cost.queued_sequences;
  queued_tokens_ += cost.queued_tokens;
  open_ += cost.sequences;
  tenants_[cost.tenant] += cost.sequences;
  return {};
}

void Admission::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
}

bool Admission::closed() const {
  const std::lock_guard lock(mutex_);
  return closed_;
}

void Admission::queued_changed(int sequences, int64_t tokens) {
  const std::lock_guard lock(mutex_);
  queued_sequences_ += sequences;
  queued_tokens_ += tokens;
}

void Admission::leave(const std::string& tenant, int sequences) {
  const std::lock_guard lock(mutex_);
  open_ -= sequences;
  const auto at = tenants_.find(tenant);
  if (at != tenants_.end() && (at->second -= sequences) <= 0) tenants_.erase(at);
}

int Admission::queued_sequences() const {
  const std::lock_guard lock(mutex_);
  return queued_sequences_;
}

int Admission::open_sequences() const {
  const std::lock_guard lock(mutex_);
  return open_;
}

}  // namespace cohort
