// SPDX-License-Identifier: Apache-2.0
// Plays the leader of a replica over a real gRPC session, without a model: token i of an answer is
// a function of prompt and i alone, so the text that a client must get is known whatever happens on
// the way. It can die, hang, lose its connection, repeat, skip and fail.
#pragma once
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "comm/wire/replica.grpc.pb.h"

namespace cohort {

struct FakeReplicaOptions {
  std::string name = "replica-0";
  std::string fingerprint = "fake";
  uint64_t epoch = 1;
  int max_context = 1024;
  int max_batch = 64;
  std::chrono::milliseconds token_interval{1};
  bool duplicate_events = false;  // each goes out twice
  int skip_index = -1;            // the event of this index is lost
  std::string fail_with;          // every request ends with this error
  bool invalid_request = false;   // and it is the request's fault
  bool leaving = false;           // or the replica is about to end
  int64_t stuck_rank_ms = 0;      // reported last_progress_ms of rank 1
  std::function<int32_t(const std::vector<int32_t>& prompt, int index)> token;  // default: letters
  int32_t end_token = 257;
};

class FakeReplica {
 public:
  FakeReplica(int port, FakeReplicaOptions options);
  ~FakeReplica();

  // Of the default token function.
  static int32_t letter(const std::vector<int32_t>& prompt, int index);
  static std::string letters(const std::vector<int32_t>& prompt, int count);

  void die();              // as kill -9 does: the stream breaks, nothing is kept
  void hang();             // as SIGSTOP does: the stream stays, silence
  void lose_connection();  // comes back as the same incarnation and resends
  void drain();            // reports that it is draining

  bool wait_connected(std::chrono::milliseconds limit = std::chrono::seconds(30));
  int active() const;
  std::vector<replica::v1::Submit> submits() const;
  int cancels() const;
  std::string reject_reason() const;

 private:
  struct Live {
    replica::v1::Submit submit;
    std::vector<int32_t> tokens;  // whole output, prefix included
    size_t sent = 0;
    size_t acknowledged = 0;
    bool finished = false;
    bool finish_sent = false;
    bool cancelled = false;
  };
  using Stream =
      grpc::ClientReaderWriter<replica::v1::LeaderMessage, replica::v1::CoordinatorMessage>;

  void run();
  void session();
  void read_all(Stream& stream);
  void take(const replica::v1::CoordinatorMessage& message);
  replica::v1::LeaderMessage hello() const;
  replica::v1::LeaderMessage load() const;
  void produce(Live& live);
  std::vector<replica::v1::TokenEvent> step();
  bool send_step(Stream& stream);

  const int port_;
  FakeReplicaOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<uint64_t, Live> live_;  // all below guarded by mutex_
  std::vector<replica::v1::Submit> submits_;
  grpc::ClientContext* call_ = nullptr;
  int cancels_ = 0;
  uint64_t last_submit_ = 0;
  std::string reject_reason_;
  bool welcomed_ = false, stop_ = false, hang_ = false, draining_ = false, stream_ended_ = false;
  std::thread thread_;
};

}  // namespace cohort
