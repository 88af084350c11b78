// SPDX-License-Identifier: Apache-2.0
#include "comm/mpi_communicator.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace cohort {
namespace {

constexpr int64_t kChunkBytes = 256 << 10;
constexpr int64_t kNoticeBytes = 1000;
constexpr Duration kNoticeTime = std::chrono::milliseconds(1);
constexpr int kPatientLooks = 200;  // some ten microseconds: messages come sooner than notices

static_assert(sizeof(MessageHeader) <= MpiCommunicator::kHeaderBytes &&
              sizeof(RoundTag) <= MpiCommunicator::kHeaderBytes);

int64_t received_bytes(const MPI_Status& status) {
  int count = 0;
  MPI_Get_count(&status, MPI_BYTE, &count);
  return count;
}

}  // namespace

MpiCommunicator::MpiCommunicator(GroupInfo info, std::shared_ptr<MpiTransport> transport,
                                 int first_tag)
    : RoundCommunicator(std::move(info), kChunkBytes),
      transport_(std::move(transport)),
      round_tag_(first_tag),
      message_tag_(first_tag + 1),
      notice_tag_(first_tag + 2),
      buffers_(std::make_unique<Buffers>()),
      held_sent_(size_t(size())) {
  const size_t bytes = size_t(kHeaderBytes + kChunkBytes);
  buffers_->out = Buffer(bytes);
  buffers_->message = Buffer(bytes);
  buffers_->to.resize(size_t(size()));
  buffers_->held.resize(size_t(size()));
  for (int r = 0; r < size(); r++) buffers_->in.emplace_back(r == rank() ? 0 : bytes);
}

MpiCommunicator::~MpiCommunicator() {
  // Where a verb has failed with messages under way, or a peer has not read the last ones, the
  // library may touch their memory at any time until the process ends: it is never given back.
  bool under_way = !requests_.empty();
  for (auto& messages : buffers_->held)
    for (Held& held : messages) {
      int done = 0;
      MPI_Test(&held.request, &done, MPI_STATUS_IGNORE);
      if (done) continue;
      MPI_Request_free(&held.request);
      under_way = true;
    }
  for (size_t i = 0; i < requests_.size(); i++) {
    if (requests_[i] == MPI_REQUEST_NULL) continue;
    if (i < receives_) MPI_Cancel(&requests_[i]);
    MPI_Request_free(&requests_[i]);
  }
  if (under_way) (void)buffers_.release();
}

std::byte* MpiCommunicator::outgoing() { return buffers_->out.data() + kHeaderBytes; }

const std::byte* MpiCommunicator::incoming(int peer) const {
  return buffers_->in[size_t(peer)].data() + kHeaderBytes;
}

// Peers that wait for this rank look for the text now and then.
void MpiCommunicator::give_up(const Status& why) {
  transport_->set_failed();
  if (told_.exchange(true)) return;
  struct Notice {
    std::string text;
    std::vector<MPI_Request> requests;
  };
  auto notice = std::make_unique<Notice>();
  notice->text = why.to_string().substr(0, kNoticeBytes);
  for (int r = 0; r < size(); r++) {
    if (r == rank()) continue;
    notice->requests.push_back(MPI_REQUEST_NULL);
    MPI_Isend(notice->text.data(), int(notice->text.size()), MPI_BYTE,
              info().world_ranks[size_t(r)], notice_tag_, transport_->comm(),
              &notice->requests.back());
  }
  const Status sent = poll_until(
      [&]() -> Result<bool> {
        int done = 0;
        COHORT_RETURN_IF_ERROR(
            mpi_status(MPI_Testall(int(notice->requests.size()), notice->requests.data(), &done,
                                   MPI_STATUSES_IGNORE),
                       "MPI_Testall"));
        return done != 0;
      },
      kNoticeTime);
  if (!sent.ok()) (void)notice.release();  // the library may still read it
}

// A text of a peer that has given up.
Status MpiCommunicator::check_notice(int peer) const {
  int found = 0;
  MPI_Message message;
  MPI_Status probed;
  COHORT_RETURN_IF_ERROR(mpi_status(MPI_Improbe(info().world_ranks[size_t(peer)], notice_tag_,
                                                transport_->comm(), &found, &message, &probed),
                                    "MPI_Improbe"));
  if (!found) return {};
  std::string text(size_t(kNoticeBytes), '\0');
  COHORT_RETURN_IF_ERROR(mpi_status(
      MPI_Mrecv(text.data(), int(text.size()), MPI_BYTE, &message, &probed), "MPI_Mrecv"));
  text.resize(size_t(received_bytes(probed)));
  return unavailable(concat(info().peer(peer), " gave up: ", text));
}

// For a wait that has looked `looks` times: what ends it early.
Status MpiCommunicator::look_around(int& looks, std::span<const int> peers) const {
  if (aborted()) return abort_status();
  if (looks++ < kPatientLooks) return {};
  for (int peer : peers) COHORT_RETURN_IF_ERROR(check_notice(peer));
  return {};
}

Status MpiCommunicator::start_send(const std::byte* message, int64_t bytes, int peer, int tag) {
  requests_.push_back(MPI_REQUEST_NULL);
  request_peer_.push_back(peer);
  return mpi_status(MPI_Isend(message, int(bytes), MPI_BYTE, info().world_ranks[size_t(peer)], tag,
                              transport_->comm(), &requests_.back()),
                    "MPI_Isend");
}

Status MpiCommunicator::start_receive(std::byte* message, int peer, int tag) {
  COHORT_CHECK_EQ(receives_, requests_.size());
  requests_.push_back(MPI_REQUEST_NULL);
  request_peer_.push_back(peer);
  receives_++;
  return mpi_status(
      MPI_Irecv(message, int(kHeaderBytes + kChunkBytes), MPI_BYTE,
                info().world_ranks[size_t(peer)], tag, transport_->comm(), &requests_.back()),
      "MPI_Irecv");
}

Status MpiCommunicator::finish(const char* verb) {
  statuses_.resize(requests_.size());
  int looks = 0;
  const Status status = poll_until(
      [&]() -> Result<bool> {
        int done = 0;
        COHORT_RETURN_IF_ERROR(mpi_status(
            MPI_Testall(int(requests_.size()), requests_.data(), &done, statuses_.data()),
            "MPI_Testall"));
        if (!done) COHORT_RETURN_IF_ERROR(look_around(looks, request_peer_));
        return done != 0;
      },
      timeout());
  if (status.code() == Code::kDeadlineExceeded && status.message().empty()) return timed_out(verb);
  if (!status.ok()) return status;
  requests_.clear();
  request_peer_.clear();
  receives_ = 0;
  return {};
}

Status MpiCommunicator::timed_out(const char* verb) {
  std::vector<bool> missing(size_t(size()), false);
  for (size_t i = 0; i < requests_.size(); i++) {
    int done = 0;
    MPI_Test(&requests_[i], &done, MPI_STATUS_IGNORE);
    if (!done) missing[size_t(request_peer_[i])] = true;
  }
  std::string names;
  for (int r = 0; r < size(); r++)
    if (missing[size_t(r)]) names += (names.empty() ? "" : ", ") + late_peer(r);
  return deadline_exceeded(concat("no ", verb, " within ", seconds(timeout()), " s from ", names));
}

Status MpiCommunicator::exchange(const RoundTag& tag, std::span<const Part> to,
                                 std::span<const Part> from) {
  for (int r = 0; r < size(); r++)
    if (r != rank() && from[size_t(r)].bytes != Part::kNone)
      COHORT_RETURN_IF_ERROR(start_receive(buffers_->in[size_t(r)].data(), r, round_tag_));
  std::memcpy(buffers_->out.data(), &tag, sizeof tag);
  for (int r = 0; r < size(); r++) {
    const Part& part = to[size_t(r)];
    if (r == rank() || part.bytes == Part::kNone) continue;
    const std::byte* message = buffers_->out.data();
    if (part.offset != 0) {
      Buffer& own = buffers_->to[size_t(r)];
      if (own.size() == 0) own = Buffer(size_t(kHeaderBytes + kChunkBytes));
      std::memcpy(own.data(), &tag, sizeof tag);
      std::memcpy(own.data() + kHeaderBytes, outgoing() + part.offset, size_t(part.bytes));
      message = own.data();
    }
    COHORT_RETURN_IF_ERROR(start_send(message, kHeaderBytes + part.bytes, r, round_tag_));
  }
  COHORT_RETURN_IF_ERROR(finish("message of a collective"));
  return check_round(tag, from);
}

// After finish(): statuses_ holds those of the receives, in the order of the peers.
Status MpiCommunicator::check_round(const RoundTag& tag, std::span<const Part> from) {
  size_t next = 0;
  for (int r = 0; r < size(); r++) {
    if (r == rank() || from[size_t(r)].bytes == Part::kNone) continue;
    const int64_t bytes = received_bytes(statuses_[next++]);
    RoundTag theirs;
    std::memcpy(&theirs, buffers_->in[size_t(r)].data(), sizeof theirs);
    COHORT_RETURN_IF_ERROR(check_tag(r, tag, theirs));
    const int64_t expected = from[size_t(r)].bytes;
    if (expected != Part::kToldInside && bytes != kHeaderBytes + expected)
      return internal_error(concat(info().peer(r), " sent ", bytes - kHeaderBytes,
                                   " bytes and not ", expected, " in ",
                                   describe(tag, place_text())));
  }
  return {};
}

Status MpiCommunicator::send_held(const std::byte* data, int64_t bytes, int peer) {
  std::vector<Held>& messages = buffers_->held[size_t(peer)];
  if (messages.empty()) messages.resize(kHeldMessages);
  Held& held = messages[held_sent_[size_t(peer)]++ % kHeldMessages];
  int looks = 0;
  const Status free = poll_until(
      [&]() -> Result<bool> {
        int done = 0;
        COHORT_RETURN_IF_ERROR(
            mpi_status(MPI_Test(&held.request, &done, MPI_STATUS_IGNORE), "MPI_Test"));
        if (!done) COHORT_RETURN_IF_ERROR(look_around(looks, {&peer, 1}));
        return done != 0;
      },
      timeout());
  if (free.code() == Code::kDeadlineExceeded && free.message().empty())
    return deadline_exceeded(
        concat("no recv within ", seconds(timeout()), " s from ", late_peer(peer)));
  COHORT_RETURN_IF_ERROR(free);
  const MessageHeader header{bytes, 0, mark()};
  std::memcpy(held.message.data(), &header, sizeof header);
  if (bytes > 0) std::memcpy(held.message.data() + kHeaderBytes, data, size_t(bytes));
  return mpi_status(
      MPI_Isend(held.message.data(), int(kHeaderBytes + bytes), MPI_BYTE,
                info().world_ranks[size_t(peer)], message_tag_, transport_->comm(), &held.request),
      "MPI_Isend");
}

Status MpiCommunicator::send_bytes(const std::byte* data, int64_t bytes, int peer) {
  if (bytes <= kHeldBytes) return send_held(data, bytes, peer);
  std::byte* const message = buffers_->message.data();
  int64_t at = 0;
  do {
    const int64_t n = std::min(kChunkBytes, bytes - at);
    const MessageHeader header{bytes, at, mark()};
    std::memcpy(message, &header, sizeof header);
    if (n > 0) std::memcpy(message + kHeaderBytes, data + at, size_t(n));
    COHORT_RETURN_IF_ERROR(start_send(message, kHeaderBytes + n, peer, message_tag_));
    COHORT_RETURN_IF_ERROR(finish("recv"));
    at += n;
  } while (at < bytes);
  return {};
}

Status MpiCommunicator::recv_bytes(std::byte* data, int64_t bytes, int peer) {
  std::byte* const message = buffers_->message.data();
  int64_t at = 0;
  do {
    const int64_t n = std::min(kChunkBytes, bytes - at);
    COHORT_RETURN_IF_ERROR(start_receive(message, peer, message_tag_));
    COHORT_RETURN_IF_ERROR(finish("send"));
    MessageHeader header;
    std::memcpy(&header, message, sizeof header);
    COHORT_RETURN_IF_ERROR(check_message(peer, {bytes, at, mark()}, header));
    if (received_bytes(statuses_[0]) != kHeaderBytes + n)
      return internal_error(concat(info().peer(peer), " cuts its messages otherwise"));
    if (n > 0) std::memcpy(data + at, message + kHeaderBytes, size_t(n));
    at += n;
  } while (at < bytes);
  return {};
}

}  // namespace cohort
