// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "base/file_descriptor.h"
#include "base/mapped_file.h"

namespace cohort {
namespace {

class MappedFileTest : public ::testing::Test {
 protected:
  std::string write(const std::string& content) {
    std::ofstream(path_, std::ios::binary) << content;
    return path_;
  }
  ~MappedFileTest() override { std::filesystem::remove(path_); }

 private:
  const std::string path_ = ::testing::TempDir() + "/cohort_mapped_file_" +
                            std::to_string(::testing::UnitTest::GetInstance()->random_seed()) +
                            "_" + std::to_string(getpid());
};

TEST_F(MappedFileTest, ShowsTheBytesOfTheFile) {
  std::string content(10000, '\0');
  for (size_t i = 0; i < content.size(); i++) content[i] = char(i * 7);
  auto file = MappedFile::open(write(content));
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  const auto bytes = (*file)->bytes();
  read_ahead(bytes);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()), content);
}

// Whether a page is in this process's memory: bit 63 of its word in pagemap(5).
bool present(const std::byte* address) {
  const FileDescriptor map(::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
  uint64_t word = 0;
  const auto page = reinterpret_cast<uintptr_t>(address) / uintptr_t(::sysconf(_SC_PAGESIZE));
  EXPECT_EQ(::pread(map.get(), &word, sizeof word, off_t(page * sizeof word)), ssize_t(8));
  return word >> 63;
}

TEST_F(MappedFileTest, PagesThatAreLetGoAreNotHeldAndCanBeReadAgain) {
  auto file = MappedFile::open(write(std::string(1 << 20, 'x')));
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  const auto bytes = (*file)->bytes();
  EXPECT_EQ(bytes[1 << 19], std::byte('x'));
  EXPECT_TRUE(present(&bytes[1 << 19]));
  let_go(bytes);
  EXPECT_FALSE(present(&bytes[1 << 19]));
  EXPECT_EQ(bytes[1 << 19], std::byte('x'));
  let_go({});
}

TEST_F(MappedFileTest, AnEmptyFileIsAnEmptySpan) {
  auto file = MappedFile::open(write(""));
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  EXPECT_TRUE((*file)->bytes().empty());
}

TEST_F(MappedFileTest, ErrorsNameThePath) {
  for (const char* path : {"/nonexistent/model.gguf", "/tmp"}) {
    const Status status = MappedFile::open(path).status();
    EXPECT_FALSE(status.ok());
    EXPECT_NE(status.message().find(path), std::string::npos) << status.to_string();
  }
}

}  // namespace
}  // namespace cohort
