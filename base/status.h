// SPDX-License-Identifier: Apache-2.0
// How recoverable failures travel: network, files, requests. Programmer errors are COHORT_CHECK
// (base/check.h). Codes are those of gRPC, so that a front can pass them on unchanged.
#pragma once
#include <optional>
#include <string>
#include <utility>

#include "base/check.h"

namespace cohort {

enum class Code : int {
  kOk = 0,
  kCancelled = 1,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kDataLoss = 15,
  kUnauthenticated = 16,
};
const char* name(Code code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {
    COHORT_CHECK(code != Code::kOk);
  }
  static Status ok_status() { return {}; }

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }
  // "INVALID_ARGUMENT: text", or "OK".
  std::string to_string() const;
  // The same failure with "what: " before its message; OK stays OK.
  Status annotate(const std::string& what) const;
  friend bool operator==(const Status&, const Status&) = default;

 private:
  Code code_ = Code::kOk;
  std::string message_;
};

inline Status invalid_argument(std::string m) { return {Code::kInvalidArgument, std::move(m)}; }
inline Status not_found(std::string m) { return {Code::kNotFound, std::move(m)}; }
inline Status unavailable(std::string m) { return {Code::kUnavailable, std::move(m)}; }
inline Status deadline_exceeded(std::string m) { return {Code::kDeadlineExceeded, std::move(m)}; }
inline Status resource_exhausted(std::string m) { return {Code::kResourceExhausted, std::move(m)}; }
inline Status failed_precondition(std::string m) {
  return {Code::kFailedPrecondition, std::move(m)};
}
inline Status internal_error(std::string m) { return {Code::kInternal, std::move(m)}; }
inline Status data_loss(std::string m) { return {Code::kDataLoss, std::move(m)}; }
inline Status unimplemented(std::string m) { return {Code::kUnimplemented, std::move(m)}; }
inline Status cancelled(std::string m) { return {Code::kCancelled, std::move(m)}; }
inline Status aborted(std::string m) { return {Code::kAborted, std::move(m)}; }

// A value or the reason why there is none.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}
  Result(Status status) : status_(std::move(status)) { COHORT_CHECK(!status_.ok()); }

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() & {
    COHORT_CHECK_MSG(ok(), status_.to_string());
    return *value_;
  }
  const T& value() const& {
    COHORT_CHECK_MSG(ok(), status_.to_string());
    return *value_;
  }
  T&& value() && {
    COHORT_CHECK_MSG(ok(), status_.to_string());
    return std::move(*value_);
  }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }

 private:
  Status status_;
  std::optional<T> value_;
};

// Leaves the function with the failure, if there is one.
#define COHORT_RETURN_IF_ERROR(expression)                                      \
  do {                                                                          \
    if (::cohort::Status status_ = (expression); !status_.ok()) return status_; \
  } while (false)

#define COHORT_CONCAT_INNER(a, b) a##b
#define COHORT_CONCAT(a, b) COHORT_CONCAT_INNER(a, b)
// COHORT_ASSIGN_OR_RETURN(auto x, f());
#define COHORT_ASSIGN_OR_RETURN(target, expression) \
  COHORT_ASSIGN_OR_RETURN_INNER(target, expression, COHORT_CONCAT(result_, __LINE__))
#define COHORT_ASSIGN_OR_RETURN_INNER(target, expression, result) \
  auto result = (expression);                                     \
  if (!result.ok()) return result.status();                       \
  target = std::move(result).value()

}  // namespace cohort
