// SPDX-License-Identifier: Apache-2.0
#include "coordinator/stop_matcher.h"

#include <gtest/gtest.h>

#include <random>

namespace cohort {
namespace {

struct Cut {
  std::string text;
  bool stopped = false;
};

// What the header promises, the slow way: the earliest end, then the longest stop string.
Cut cut_at_first_stop(const std::string& text, const std::vector<std::string>& stops,
                      bool include) {
  for (size_t end = 1; end <= text.size(); ++end) {
    size_t longest = 0;
    for (const std::string& stop : stops) {
      if (stop.size() <= end && text.compare(end - stop.size(), stop.size(), stop) == 0)
        longest = std::max(longest, stop.size());
    }
    if (longest > 0) return {text.substr(0, include ? end : end - longest), true};
  }
  return {text, false};
}

bool is_proper_prefix_of_any(const std::string& text, const std::vector<std::string>& stops) {
  for (const std::string& stop : stops) {
    if (text.size() < stop.size() && stop.starts_with(text)) return true;
  }
  return false;
}

class Random {
 public:
  int below(int n) { return std::uniform_int_distribution<int>(0, n - 1)(engine_); }
  // Few letters, so that stop strings occur and overlap often.
  std::string word(int least, int most) {
    std::string out;
    for (int n = least + below(most - least + 1); n > 0; --n)
      out += static_cast<char>('a' + below(3));
    return out;
  }

 private:
  std::mt19937 engine_{20260101};
};

TEST(StopMatcher, E22_AnySplitGivesTheTextCutAtTheFirstStop) {
  Random random;
  int stopped = 0;
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::string> stops;
    for (int n = random.below(4); n >= 0; --n) stops.push_back(random.word(1, 5));
    const std::string text = random.word(0, 40);
    const bool include = random.below(2) == 1;
    const Cut want = cut_at_first_stop(text, stops, include);
    StopMatcher matcher(stops, include);
    std::string got;
    for (size_t at = 0; at < text.size() && !matcher.stopped();) {
      const size_t n = 1 + static_cast<size_t>(random.below(6));
      got += matcher.push(text.substr(at, n));
      at = std::min(text.size(), at + n);
      if (!matcher.stopped()) {
        // Only what may become a stop string is held back.
        const std::string held = text.substr(got.size(), at - got.size());
        ASSERT_TRUE(held.empty() || is_proper_prefix_of_any(held, stops)) << text;
      }
    }
    if (!matcher.stopped()) got += matcher.flush();
    ASSERT_EQ(got, want.text) << "text " << text << " first stop " << stops[0];
    ASSERT_EQ(matcher.stopped(), want.stopped);
    stopped += want.stopped;
  }
  EXPECT_GT(stopped, 5000);
}

TEST(StopMatcher, HoldsBackAPrefixAndGivesItAtTheEnd) {
  StopMatcher matcher({"<end>"}, false);
  EXPECT_EQ(matcher.push("hello <en"), "hello ");
  EXPECT_EQ(matcher.flush(), "<en");
  EXPECT_FALSE(matcher.stopped());
}

TEST(StopMatcher, TextThatPassesIsNotMatchedButNotLost) {
  StopMatcher matcher({"ab"}, false);
  EXPECT_EQ(matcher.pass("xab"), "xab");
  EXPECT_EQ(matcher.push("a"), "");
  EXPECT_EQ(matcher.pass("b"), "ab");
  EXPECT_EQ(matcher.push("cab!"), "c");
  EXPECT_TRUE(matcher.stopped());
}

}  // namespace
}  // namespace cohort
