// SPDX-License-Identifier: Apache-2.0
// What the MPI world and its groups share: the library's lifetime, waiting with a deadline, and
// small texts at start-up. MPI is initialised with MPI_THREAD_MULTIPLE; everything that is pending
// is polled, never waited for inside MPI, so that every wait can end.
#pragma once
#include <mpi.h>

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/function_ref.h"
#include "base/status.h"

namespace cohort {

Status mpi_status(int code, const char* call);

// Polls until done() gives true (OK) or a failure, or the time is over (DEADLINE_EXCEEDED with an
// empty reason: the caller knows who is missing).
Status poll_until(FunctionRef<Result<bool>()> done, Duration timeout);

class MpiTransport {
 public:
  // FAILED_PRECONDITION if MPI has been initialised in this process before.
  static Result<std::shared_ptr<MpiTransport>> initialise();
  // Finalises MPI, unless a group has failed: MPI would wait for ranks that are gone. The process
  // is expected to end then, which mpirun answers by ending the others.
  ~MpiTransport();
  MpiTransport(const MpiTransport&) = delete;
  MpiTransport& operator=(const MpiTransport&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  MPI_Comm comm() const { return comm_; }
  void set_failed() { failed_.store(true); }

  // Everybody's text in the order of members, by way of the first of them. what: what is being
  // done, which must be the same for all.
  Result<std::vector<std::string>> exchange(const std::vector<int>& members,
                                            const std::string& what, const std::string& text,
                                            Duration timeout);

  static constexpr int kSetupTag = 1;
  static constexpr int kFirstGroupTag = 16;
  // The first tag that no group of this rank uses.
  int next_tag() const { return next_tag_; }
  void use_tags_below(int tag) { next_tag_ = tag; }

 private:
  MpiTransport(MPI_Comm comm, int rank, int size) : comm_(comm), rank_(rank), size_(size) {}
  Status send_text(int to, const std::string& text, Deadline deadline);
  Result<std::string> receive_text(int from, Deadline deadline);
  // came: the other members whose text did.
  Result<std::vector<std::string>> gather(const std::vector<int>& members, const std::string& what,
                                          const std::string& text, Deadline deadline,
                                          std::vector<int>& came);

  MPI_Comm comm_;
  const int rank_, size_;
  int next_tag_ = kFirstGroupTag;
  std::atomic<bool> failed_{false};
};

}  // namespace cohort
