// SPDX-License-Identifier: Apache-2.0
// A Status thrown where a return value would have to pass through layers that can do nothing about
// it: a failed collective, a device that is lost. Caught where a step or a load is turned into a
// Status.
#pragma once
#include <exception>
#include <new>
#include <utility>

#include "base/status.h"

namespace cohort {

class Failure : public std::exception {
 public:
  explicit Failure(Status status) : status_(std::move(status)) {}
  const Status& status() const { return status_; }
  const char* what() const noexcept override { return status_.message().c_str(); }

 private:
  Status status_;
};

// A device has no room for what was asked: says how much was asked for and how much is free.
class OutOfMemory : public std::bad_alloc {
 public:
  explicit OutOfMemory(Status status) : status_(std::move(status)) {}
  const Status& status() const { return status_; }
  const char* what() const noexcept override { return status_.message().c_str(); }

 private:
  Status status_;
};

}  // namespace cohort
