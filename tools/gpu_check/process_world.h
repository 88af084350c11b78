// SPDX-License-Identifier: Apache-2.0
// Ranks as processes of one host that meet in a folder: what they tell each other at start-up are
// small files; groups are shared memory (comm/shm.h).
#pragma once
#include <map>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace cohort::gpu_check {

class ProcessWorld : public World {
 public:
  // folder: empty at first, the same for all ranks.
  ProcessWorld(std::string folder, int rank, int size);

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  const std::string& host() const override { return host_; }
  Result<std::vector<std::string>> exchange(const std::string& text, Duration timeout) override;
  Result<std::unique_ptr<Communicator>> group(const std::vector<int>& members,
                                              const std::string& label) override;

 private:
  Result<std::vector<std::string>> exchange(const std::string& channel,
                                            const std::vector<int>& members,
                                            const std::string& text, Duration timeout);
  std::string path(const std::string& channel, int number, int rank) const;

  const std::string folder_;
  const int rank_, size_;
  const std::string host_ = "localhost";
  std::map<std::string, int> exchanges_;  // so far, by channel
};

}  // namespace cohort::gpu_check
