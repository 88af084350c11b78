// SPDX-License-Identifier: Apache-2.0
#include "tests/comm/mismatch_checks.h"

#include <gmock/gmock.h>

#include <functional>

#include "tests/comm/suite_support.h"

namespace cohort::mismatch {
namespace {

using std::chrono::milliseconds;
using ::testing::AnyOf;
using ::testing::HasSubstr;

std::string place_text(uint64_t place) { return concat("attention, layer ", place); }

// A group of all ranks in step 41.
std::unique_ptr<Communicator> marked_group(World& world) {
  auto comm = whole_group(world);
  comm->set_place_text(place_text);
  comm->set_mark({41, 0});
  return comm;
}

// Every rank has one unit.
Status reduce(Communicator& comm, Mark mark, int64_t count) {
  comm.set_mark(mark);
  std::vector<UnitRange> owned;
  for (int r = 0; r < comm.size(); r++) owned.push_back({r, r + 1});
  std::vector<float> piece(size_t(count), 1.0f), out(static_cast<size_t>(count));
  return comm.all_reduce(TreePlan(comm.size(), owned), piece.data(), out.data(), count);
}

Status gather(Communicator& comm, Mark mark, int64_t bytes) {
  comm.set_mark(mark);
  const std::vector<int64_t> sizes(size_t(comm.size()), bytes);
  std::vector<char> in(static_cast<size_t>(bytes)), out(size_t(bytes * comm.size()));
  return comm.all_gather(in.data(), out.data(), sizes);
}

using Verbs = std::function<Status(Communicator&)>;

// The last rank does something else than the others: whoever notices it first says so, and the
// others hear of it. Both sides' texts are in what everybody gets.
void expect_named(World& world, const Verbs& most, const std::string& most_text, const Verbs& last,
                  const std::string& last_text) {
  if (world.size() < 2) return;
  auto comm = marked_group(world);
  const bool is_last = world.rank() == world.size() - 1;
  const Status status = is_last ? last(*comm) : most(*comm);
  EXPECT_THAT(status.code(), AnyOf(Code::kInternal, Code::kUnavailable)) << status.to_string();
  EXPECT_THAT(status.message(), HasSubstr(most_text));
  EXPECT_THAT(status.message(), HasSubstr(last_text));
  EXPECT_THAT(status.message(), HasSubstr(concat("rank ", world.size() - 1, " on host")));
  EXPECT_THAT(status.message(), HasSubstr("this rank (rank "));
  EXPECT_EQ(comm->barrier(), status) << "the group stays unusable";
  meet(world);
}

}  // namespace

void different_verbs(World& world) {
  expect_named(
      world,
      [](Communicator& comm) {
        return gather(comm, {41, 5}, 8);
      },
      "all_gather 1 of step 41 (attention, layer 5, ",
      [](Communicator& comm) {
        int64_t value = 0;
        comm.set_mark({41, 5});
        return comm.broadcast(&value, 8, 1);
      },
      "broadcast 1 of step 41 (attention, layer 5, 8 bytes, root 1)");
}

void different_sizes(World& world) {
  const int64_t n = world.size();
  expect_named(
      world,
      [](Communicator& comm) {
        return reduce(comm, {41, 5}, 50);
      },
      concat("all_reduce 1 of step 41 (attention, layer 5, ", 200 * n, " bytes"),
      [](Communicator& comm) {
        return reduce(comm, {41, 5}, 40);
      },
      concat("all_reduce 1 of step 41 (attention, layer 5, ", 160 * n, " bytes"));
  if (n < 2) return;
  auto pair = marked_group(world);
  std::vector<char> data(300);
  pair->set_mark({41, uint64_t(world.rank() + 6)});
  if (world.rank() == 0) (void)pair->send(data.data(), 300, 1);
  if (world.rank() == 1) {
    const Status sizes = pair->recv(data.data(), 200, 0);
    EXPECT_EQ(sizes.code(), Code::kInternal) << sizes.to_string();
    EXPECT_THAT(sizes.message(), HasSubstr("rank 0 on host"));
    EXPECT_THAT(sizes.message(), HasSubstr("sends 300 bytes in step 41 (attention, layer 6)"));
    EXPECT_THAT(sizes.message(), HasSubstr("receives 200 bytes in step 41 (attention, layer 7)"));
  }
  meet(world);
}

void all_to_all_sizes(World& world) {
  if (world.size() < 2) return;
  auto comm = marked_group(world);
  std::vector<char> in(1000), out(1000);
  std::vector<int64_t> to(size_t(world.size()), 16), from = to;
  if (world.rank() == 0) to[1] = 300;
  if (world.rank() == 1) from[0] = 200;
  const Status status = comm->all_to_all(in.data(), to, out.data(), from);
  if (world.rank() < 2) {
    EXPECT_THAT(status.code(), AnyOf(Code::kInternal, Code::kUnavailable)) << status.to_string();
    EXPECT_THAT(status.message(), HasSubstr("rank 0 on host"));
    EXPECT_THAT(status.message(), HasSubstr("sends 300 bytes to rank 1 on host"));
    EXPECT_THAT(status.message(), HasSubstr("which expects 200, in all_to_all 1 of step 41"));
  }
  meet(world);
}

void a_skipped_collective(World& world) {
  expect_named(
      world,
      [](Communicator& comm) {
        const Status first = reduce(comm, {41, 3}, 100);
        return first.ok() ? reduce(comm, {41, 4}, 100) : first;
      },
      "all_reduce 1 of step 41 (attention, layer 3, ",
      [](Communicator& comm) {
        return reduce(comm, {41, 4}, 100);
      },
      "all_reduce 1 of step 41 (attention, layer 4, ");
}

void swapped_collectives(World& world) {
  expect_named(
      world,
      [](Communicator& comm) {
        const Status first = reduce(comm, {41, 3}, 100);
        return first.ok() ? gather(comm, {41, 3}, 400) : first;
      },
      "all_reduce 1 of step 41",
      [](Communicator& comm) {
        const Status first = gather(comm, {41, 3}, 400);
        return first.ok() ? reduce(comm, {41, 3}, 100) : first;
      },
      "all_gather 1 of step 41");
}

// Same verb, number and size: only the place tells.
void equal_collectives_of_different_layers(World& world) {
  expect_named(
      world,
      [](Communicator& comm) {
        const Status first = reduce(comm, {41, 2}, 20000);
        return first.ok() ? reduce(comm, {41, 8}, 20000) : first;
      },
      "all_reduce 2 of step 41 (attention, layer 8, ",
      [](Communicator& comm) {
        const Status first = reduce(comm, {41, 2}, 20000);
        return first.ok() ? reduce(comm, {41, 9}, 20000) : first;
      },
      "all_reduce 2 of step 41 (attention, layer 9, ");
}

void different_steps(World& world) {
  expect_named(
      world,
      [](Communicator& comm) {
        return reduce(comm, {41, 3}, 10);
      },
      "1 of step 41",
      [](Communicator& comm) {
        return reduce(comm, {42, 3}, 10);
      },
      "1 of step 42");
}

void numbers_start_anew_in_a_step(World& world) {
  const auto steps = [](uint64_t last_place) {
    return [last_place](Communicator& comm) -> Status {
      for (uint64_t step : {41, 42, 43})
        for (uint64_t place = 0; place < 5; place++)
          COHORT_RETURN_IF_ERROR(reduce(comm, {step, place}, 10));
      COHORT_RETURN_IF_ERROR(reduce(comm, {44, 0}, 10));
      return reduce(comm, {44, last_place}, 10);
    };
  };
  expect_named(world, steps(1), "all_reduce 2 of step 44 (attention, layer 1, ", steps(2),
               "all_reduce 2 of step 44 (attention, layer 2, ");
}

// The last rank ends its step one collective early: the others say where they wait for it, and
// where it was last.
void a_rank_that_stays_behind(World& world) {
  if (world.size() < 2) return;
  auto comm = marked_group(world);
  ASSERT_TRUE(reduce(*comm, {41, 3}, 10).ok());
  const int last = world.size() - 1;
  if (world.rank() != last) {
    comm->set_timeout(milliseconds(150));
    const Status status = reduce(*comm, {41, 4}, 10);
    EXPECT_THAT(status.code(), AnyOf(Code::kDeadlineExceeded, Code::kUnavailable));
    EXPECT_THAT(status.message(), HasSubstr(concat("rank ", last, " on host")));
    EXPECT_THAT(status.message(),
                HasSubstr("(last in all_reduce 1 of step 41 (attention, layer 3"));
    EXPECT_THAT(status.message(),
                HasSubstr("this rank is in all_reduce 2 of step 41 (attention, layer 4"));
  }
  meet(world);
}

}  // namespace cohort::mismatch
