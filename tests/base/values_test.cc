// SPDX-License-Identifier: Apache-2.0
// The small values of base: element types, tensor views, buffers, time, descriptors, tasks.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "base/dtype.h"
#include "base/file_descriptor.h"
#include "base/function_ref.h"
#include "base/log.h"
#include "base/task.h"
#include "base/tensor.h"

namespace cohort {
namespace {

TEST(DType, BlocksHaveTheSizesOfTheirParts) {
  // From the structures of the format: scales in f16, then packed values.
  EXPECT_EQ(bytes_of(DType::q8_0, 64), 2 * (2 + 32));
  EXPECT_EQ(bytes_of(DType::q4_0, 64), 2 * (2 + 16));
  EXPECT_EQ(bytes_of(DType::q4_1, 64), 2 * (4 + 16));
  EXPECT_EQ(bytes_of(DType::q5_0, 64), 2 * (2 + 4 + 16));
  EXPECT_EQ(bytes_of(DType::q5_1, 64), 2 * (4 + 4 + 16));
  EXPECT_EQ(bytes_of(DType::q4_k, 256), 4 + 12 + 128);
  EXPECT_EQ(bytes_of(DType::q5_k, 256), 4 + 12 + 32 + 128);
  EXPECT_EQ(bytes_of(DType::q6_k, 256), 128 + 64 + 16 + 2);
  EXPECT_EQ(bytes_of(DType::f32, 3), 12);
  EXPECT_EQ(bytes_of(DType::f16, 3), 6);
  EXPECT_EQ(bytes_of(DType::bf16, 3), 6);
  EXPECT_EQ(bytes_of(DType::i32, 3), 12);
  EXPECT_EQ(bytes_of(DType::i8, 3), 3);
}

TEST(DType, NamesAreReadBack) {
  for (int i = 0; i <= int(DType::q6_k); i++) EXPECT_EQ(parse_dtype(name(DType(i))), DType(i));
  EXPECT_EQ(parse_dtype("f64"), std::nullopt);
  EXPECT_TRUE(is_quantized(DType::q4_0));
  EXPECT_FALSE(is_quantized(DType::i8));
}

TEST(DTypeDeathTest, PartsOfBlocksHaveNoSize) {
  EXPECT_DEATH(bytes_of(DType::q4_0, 33), "check failed");
}

TEST(Tensor, KnowsItsShape) {
  float data[24];
  const Tensor tensor(data, DType::f32, {2, 3, 4});
  EXPECT_EQ(tensor.rank(), 3);
  EXPECT_EQ(tensor.dim(-1), 4);
  EXPECT_EQ(tensor.rows(), 6);
  EXPECT_EQ(tensor.elements(), 24);
  EXPECT_EQ(tensor.bytes(), 96);
  const Tensor rows = Tensor(data, DType::f32, {6, 4}).slice_rows(2, 3);
  EXPECT_EQ(rows.f32(), data + 8);
  EXPECT_EQ(rows.dim(0), 3);
}

TEST(Buffer, IsZeroedAlignedAndMoves) {
  const size_t huge = size_t(2) << 20;
  for (size_t bytes : {size_t(1), size_t(100), huge - 1, huge, 2 * huge + 100}) {
    Buffer buffer(bytes);
    ASSERT_EQ(buffer.size(), bytes);
    const size_t alignment = bytes >= huge ? huge : 64;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % alignment, 0u);
    EXPECT_TRUE(std::all_of(buffer.data(), buffer.data() + bytes,
                            [](std::byte b) { return b == std::byte(0); }));
    buffer.as<char>()[bytes - 1] = 'x';
    Buffer moved(std::move(buffer));
    EXPECT_EQ(moved.as<char>()[bytes - 1], 'x');
    Buffer other;
    other = std::move(moved);
    EXPECT_EQ(other.as<char>()[bytes - 1], 'x');
  }
  EXPECT_EQ(Buffer(0).data(), nullptr);
  EXPECT_THROW(Buffer(size_t(1) << 60), std::bad_alloc);
}

TEST(Buffer, AViewOwnsNothing) {
  Buffer whole(100);
  {
    Buffer view = view_of(whole.data() + 10, 20);
    EXPECT_EQ(view.size(), 20u);
    view.as<char>()[0] = 'x';
    const Buffer moved(std::move(view));
    EXPECT_EQ(moved.data(), whole.data() + 10);
  }
  EXPECT_EQ(whole.as<char>()[10], 'x');
}

TEST(Clock, ManualTimeMovesWhenTold) {
  ManualClock clock;
  const TimePoint start = clock.now();
  clock.advance(std::chrono::seconds(3));
  EXPECT_EQ(clock.now() - start, std::chrono::seconds(3));
  EXPECT_EQ(seconds(clock.now() - start), 3.0);
}

TEST(Clock, DeadlinesExpire) {
  const Deadline past = Deadline::after(std::chrono::milliseconds(-1));
  EXPECT_TRUE(past.expired());
  EXPECT_EQ(past.left(), Duration(0));
  const Deadline later = Deadline::after(std::chrono::hours(1));
  EXPECT_FALSE(later.expired());
  EXPECT_GT(later.left(), std::chrono::minutes(59));
  const TimePoint first = SteadyClock().now(), second = SteadyClock().now();
  EXPECT_LE(first, second);
}

TEST(FileDescriptor, ClosesOnceAtTheEnd) {
  int number = -1;
  {
    FileDescriptor first(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    ASSERT_TRUE(first.valid());
    number = first.get();
    FileDescriptor second(std::move(first));
    EXPECT_EQ(second.get(), number);
    EXPECT_NE(::fcntl(number, F_GETFD), -1);
  }
  EXPECT_EQ(::fcntl(number, F_GETFD), -1);
  EXPECT_FALSE(FileDescriptor().valid());
}

TEST(FunctionRef, CallsWhatItRefersTo) {
  int sum = 0;
  const auto add = [&](int value) { return sum += value; };
  const FunctionRef<int(int)> ref(add);
  EXPECT_EQ(ref(3), 3);
  EXPECT_EQ(ref(4), 7);
}

TEST(Cpu, NamesAreReadBack) {
  for (Isa isa : kIsas) EXPECT_EQ(parse_isa(name(isa)), isa);
  EXPECT_EQ(parse_isa("mmx"), std::nullopt);
  EXPECT_TRUE(supported(Isa::portable));
  EXPECT_TRUE(supported(detect_isa()));
}

TEST(Log, LevelsAreReadBack) {
  EXPECT_EQ(parse_log_level("debug"), LogLevel::debug);
  EXPECT_EQ(parse_log_level("warning"), LogLevel::warning);
  EXPECT_EQ(parse_log_level("error"), LogLevel::error);
  EXPECT_EQ(parse_log_level("loud"), LogLevel::info);
}

// Something that a task waits for; completed from outside.
struct Gate {
  std::coroutine_handle<> waiting;
  bool await_ready() const { return false; }
  void await_suspend(std::coroutine_handle<> handle) { waiting = handle; }
  void await_resume() const {}
  void open() { std::exchange(waiting, {}).resume(); }
};

Task inner(Gate& gate, std::vector<std::string>& steps) {
  steps.push_back("inner starts");
  co_await gate;
  steps.push_back("inner ends");
}

Task outer(Gate& gate, std::vector<std::string>& steps) {
  steps.push_back("outer starts");
  co_await inner(gate, steps);
  steps.push_back("outer ends");
}

TEST(Task, RunsWhenStartedAndGoesOnWhenResumed) {
  Gate gate;
  std::vector<std::string> steps;
  Task task = outer(gate, steps);
  EXPECT_TRUE(steps.empty()) << "lazy";
  task.start();
  EXPECT_FALSE(task.done());
  EXPECT_EQ(steps, (std::vector<std::string>{"outer starts", "inner starts"}));
  gate.open();
  EXPECT_TRUE(task.done());
  task.result();
  EXPECT_EQ(steps.back(), "outer ends");
}

TEST(Task, ATaskThatIsNotFinishedCanBeDropped) {
  Gate gate;
  std::vector<std::string> steps;
  {
    Task task = outer(gate, steps);
    task.start();
  }
  EXPECT_EQ(steps.back(), "inner starts");
}

Task fails(Gate& gate) {
  co_await gate;
  throw std::runtime_error("collective failed");
}

Task awaits_failure(Gate& gate, bool& went_on) {
  co_await fails(gate);
  went_on = true;
}

TEST(Task, ExceptionsPassToTheAwaiter) {
  Gate gate;
  bool went_on = false;
  Task task = awaits_failure(gate, went_on);
  task.start();
  gate.open();
  ASSERT_TRUE(task.done());
  EXPECT_THROW(task.result(), std::runtime_error);
  EXPECT_FALSE(went_on);
}

Task nothing() { co_return; }

Task loops(int times) {
  for (int i = 0; i < times; i++) co_await nothing();
}

TEST(Task, AwaitsInALoopGoOn) {
  Task task = loops(1000);
  task.start();
  EXPECT_TRUE(task.done());
}

}  // namespace
}  // namespace cohort
