// SPDX-License-Identifier: Apache-2.0
#include "tools/gpu_check/process_world.h"

#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "comm/rounds.h"
#include "comm/shm.h"

namespace cohort::gpu_check {

ProcessWorld::ProcessWorld(std::string folder, int rank, int size)
    : folder_(std::move(folder)), rank_(rank), size_(size) {}

Result<std::vector<std::string>> ProcessWorld::exchange(const std::string& text, Duration timeout) {
  std::vector<int> everyone;
  for (int r = 0; r < size_; r++) everyone.push_back(r);
  return exchange("world", everyone, text, timeout);
}

Result<std::unique_ptr<Communicator>> ProcessWorld::group(const std::vector<int>& members,
                                                          const std::string& label) {
  COHORT_RETURN_IF_ERROR(check_members(members, rank_, size_));
  if (members.size() == 1) return make_solo_communicator(label);
  GroupInfo info{.rank = 0,
                 .world_ranks = members,
                 .hosts = std::vector<std::string>(members.size(), host_),
                 .name = group_name("shm", label, members)};
  while (members[size_t(info.rank)] != rank_) info.rank++;
  std::string channel = label;
  for (const int member : members) channel += concat("-", member);
  return make_shm_communicator(info, [&](const std::string& text) {
    return exchange(channel, members, text, std::chrono::seconds(30));
  });
}

std::string ProcessWorld::path(const std::string& channel, int number, int rank) const {
  return concat(folder_, "/", channel, ".", number, ".", rank);
}

Result<std::vector<std::string>> ProcessWorld::exchange(const std::string& channel,
                                                        const std::vector<int>& members,
                                                        const std::string& text, Duration timeout) {
  const int number = exchanges_[channel]++;
  const std::string mine = path(channel, number, rank_);
  std::ofstream(mine + ".new", std::ios::binary) << text;
  std::error_code error;
  std::filesystem::rename(mine + ".new", mine, error);  // there as a whole or not at all
  if (error) return unavailable(concat("cannot write ", mine, ": ", error.message()));
  const Deadline deadline = Deadline::after(timeout);
  std::vector<std::string> texts;
  for (const int r : members) {
    const std::string theirs = path(channel, number, r);
    while (!std::filesystem::exists(theirs)) {
      if (deadline.expired()) return deadline_exceeded(concat("rank ", r, " did not come"));
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    std::ostringstream content;
    content << std::ifstream(theirs, std::ios::binary).rdbuf();
    texts.push_back(std::move(content).str());
  }
  return texts;
}

}  // namespace cohort::gpu_check
