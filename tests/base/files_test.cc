// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

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
