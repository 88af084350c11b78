// SPDX-License-Identifier: Apache-2.0
#include "comm/mpi_transport.h"

#include <sys/prctl.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <thread>

#include "base/check.h"
#include "base/cpu.h"

namespace cohort {
namespace {

// A peer usually comes within a few microseconds: spin. Then leave the core to others now and then.
// A wait that takes longer sleeps for an eighth of the time that it has taken, so that it hardly
// takes longer for that and leaves the core to whoever computes.
constexpr Duration kSpin = std::chrono::microseconds(4);
constexpr Duration kYield = std::chrono::microseconds(50);
constexpr Duration kShortestSleep = std::chrono::microseconds(5);
constexpr Duration kLongestSleep = std::chrono::microseconds(100);
constexpr Duration kAnswerGrace = std::chrono::seconds(2);
constexpr int kMaxTextBytes = 16 << 20;

// While it lives, this thread's sleeps end within a microsecond of their time, and not within the
// usual fifty: two ranks that wait for each other would keep each other asleep.
class PreciseSleep {
 public:
  PreciseSleep() : before_(::prctl(PR_GET_TIMERSLACK)) { ::prctl(PR_SET_TIMERSLACK, 1000UL); }
  ~PreciseSleep() {
    if (before_ > 0) ::prctl(PR_SET_TIMERSLACK, static_cast<unsigned long>(before_));
  }
  PreciseSleep(const PreciseSleep&) = delete;

 private:
  const int before_;  // nanoseconds
};

// Texts one after the other, each behind its length.
std::string join(const std::vector<std::string>& texts) {
  std::string joined;
  for (const std::string& text : texts) joined += std::to_string(text.size()) + ":" + text;
  return joined;
}

Result<std::vector<std::string>> split(const std::string& joined) {
  std::vector<std::string> texts;
  for (size_t at = 0; at < joined.size();) {
    const size_t colon = joined.find(':', at);
    if (colon == std::string::npos || colon - at > 9) return internal_error("malformed exchange");
    const size_t size = std::strtoul(joined.c_str() + at, nullptr, 10);
    if (size > joined.size() - colon - 1) return internal_error("malformed exchange");
    texts.push_back(joined.substr(colon + 1, size));
    at = colon + 1 + size;
  }
  return texts;
}

}  // namespace

Status mpi_status(int code, const char* call) {
  if (code == MPI_SUCCESS) return {};
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  return unavailable(concat(call, ": ", text));
}

Status poll_until(FunctionRef<Result<bool>()> done, Duration timeout) {
  const TimePoint start = std::chrono::steady_clock::now();
  std::optional<PreciseSleep> precise;
  for (;;) {
    COHORT_ASSIGN_OR_RETURN(const bool finished, done());
    if (finished) return {};
    const Duration waited = std::chrono::steady_clock::now() - start;
    if (waited >= timeout) return deadline_exceeded("");
    if (waited < kSpin) {
      cpu_pause();
    } else if (waited < kYield) {
      std::this_thread::yield();
    } else {
      if (!precise) precise.emplace();
      std::this_thread::sleep_for(std::clamp(waited / 8, kShortestSleep, kLongestSleep));
    }
  }
}

Result<std::shared_ptr<MpiTransport>> MpiTransport::initialise() {
  int initialised = 0, provided = 0;
  MPI_Initialized(&initialised);
  if (initialised) return failed_precondition("MPI is initialised in this process already");
  COHORT_RETURN_IF_ERROR(
      mpi_status(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), "MPI_Init"));
  if (provided < MPI_THREAD_MULTIPLE)
    return failed_precondition("this MPI library lacks MPI_THREAD_MULTIPLE; use one that has it");
  MPI_Comm comm;
  COHORT_RETURN_IF_ERROR(mpi_status(MPI_Comm_dup(MPI_COMM_WORLD, &comm), "MPI_Comm_dup"));
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  int rank = 0, size = 0;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  return std::shared_ptr<MpiTransport>(new MpiTransport(comm, rank, size));
}

MpiTransport::~MpiTransport() {
  if (failed_.load()) return;
  MPI_Comm_free(&comm_);
  MPI_Finalize();
}

Status MpiTransport::send_text(int to, const std::string& text, Deadline deadline) {
  // Of its own: the library may still read it after a timeout.
  auto buffer = std::make_unique<std::string>(text);
  MPI_Request request;
  COHORT_RETURN_IF_ERROR(mpi_status(
      MPI_Isend(buffer->data(), int(buffer->size()), MPI_BYTE, to, kSetupTag, comm_, &request),
      "MPI_Isend"));
  const Status status = poll_until(
      [&]() -> Result<bool> {
        int done = 0;
        COHORT_RETURN_IF_ERROR(
            mpi_status(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test"));
        return done != 0;
      },
      deadline.left());
  if (status.ok()) return status;
  (void)buffer.release();
  return Status(status.code(), concat("rank ", to, " does not receive ", status.message()));
}

Result<std::string> MpiTransport::receive_text(int from, Deadline deadline) {
  MPI_Message message;
  MPI_Status probed;
  const Status status = poll_until(
      [&]() -> Result<bool> {
        int found = 0;
        COHORT_RETURN_IF_ERROR(mpi_status(
            MPI_Improbe(from, kSetupTag, comm_, &found, &message, &probed), "MPI_Improbe"));
        return found != 0;
      },
      deadline.left());
  if (!status.ok())
    return Status(status.code(), concat("rank ", from, " did not come ", status.message()));
  int bytes = 0;
  MPI_Get_count(&probed, MPI_BYTE, &bytes);
  if (bytes < 0 || bytes > kMaxTextBytes)
    return internal_error(concat("rank ", from, " sent a text of ", bytes, " bytes"));
  std::string text(size_t(bytes), '\0');
  // Matched already: its bytes are on their way.
  COHORT_RETURN_IF_ERROR(mpi_status(
      MPI_Mrecv(text.data(), bytes, MPI_BYTE, &message, MPI_STATUS_IGNORE), "MPI_Mrecv"));
  return text;
}

Result<std::vector<std::string>> MpiTransport::gather(const std::vector<int>& members,
                                                      const std::string& what,
                                                      const std::string& text, Deadline deadline,
                                                      std::vector<int>& came) {
  std::vector<std::string> texts{text};
  std::string missing;
  for (int member : members) {
    if (member == rank_) continue;
    Result<std::string> received = receive_text(member, deadline);
    if (!received.ok()) {
      if (received.status().code() != Code::kDeadlineExceeded) return received.status();
      missing += (missing.empty() ? "rank " : ", rank ") + std::to_string(member);
      continue;
    }
    came.push_back(member);
    COHORT_ASSIGN_OR_RETURN(std::vector<std::string> parts, split(*received));
    if (parts.size() != 2 || parts[0] != what)
      return internal_error(concat("rank ", rank_, " is at ", what, ", rank ", member, " at ",
                                   parts.empty() ? "nothing" : parts[0]));
    texts.push_back(std::move(parts[1]));
  }
  if (!missing.empty()) return deadline_exceeded(missing + " did not come in time");
  return texts;
}

Result<std::vector<std::string>> MpiTransport::exchange(const std::vector<int>& members,
                                                        const std::string& what,
                                                        const std::string& text, Duration timeout) {
  const Deadline deadline = Deadline::after(timeout);
  if (int64_t(text.size()) * int64_t(members.size()) > kMaxTextBytes / 2)
    return invalid_argument(what + ": text too long");
  // The first member tells the others what came of it, also who did not come: they wait for that a
  // little longer than it waits for them.
  const Deadline answer = Deadline::after(timeout + kAnswerGrace);
  if (rank_ != members[0]) {
    COHORT_RETURN_IF_ERROR(send_text(members[0], join({what, text}), deadline).annotate(what));
    Result<std::string> all = receive_text(members[0], answer);
    if (!all.ok()) return all.status().annotate(what);
    COHORT_ASSIGN_OR_RETURN(std::vector<std::string> texts, split(*all));
    if (texts.size() == members.size()) return texts;
    return Status(Code::kAborted, texts.empty() ? what + " failed" : texts[0]);
  }
  std::vector<int> came;
  Result<std::vector<std::string>> texts = gather(members, what, text, deadline, came);
  if (!texts.ok()) texts = texts.status().annotate(what);
  const std::string joined =
      join(texts.ok() ? *texts : std::vector<std::string>{texts.status().message()});
  for (int member : came)
    if (const Status sent = send_text(member, joined, answer); !sent.ok() && texts.ok())
      texts = sent.annotate(what);
  return texts;
}

}  // namespace cohort
