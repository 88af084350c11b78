// SPDX-License-Identifier: Apache-2.0
// Programmer errors end the process with file, line and both operands. They are never used for
// anything that a file, a request or a peer can cause: that is a Status.
#pragma once
#include <sstream>
#include <string>

namespace cohort {

[[noreturn]] void check_failed(const char* file, int line, const char* what,
                               const std::string& detail);

// One string out of any printable values: concat("rank ", 3, " of ", 8).
template <class... Parts>
std::string concat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return std::move(out).str();
}

#define COHORT_CHECK(condition)                                                   \
  do {                                                                            \
    if (!(condition)) ::cohort::check_failed(__FILE__, __LINE__, #condition, {}); \
  } while (false)

#define COHORT_CHECK_MSG(condition, detail)                                             \
  do {                                                                                  \
    if (!(condition)) ::cohort::check_failed(__FILE__, __LINE__, #condition, (detail)); \
  } while (false)

#define COHORT_CHECK_OP(a, op, b)                                                \
  do {                                                                           \
    const auto& check_a_ = (a);                                                  \
    const auto& check_b_ = (b);                                                  \
    if (!(check_a_ op check_b_))                                                 \
      ::cohort::check_failed(__FILE__, __LINE__, #a " " #op " " #b,              \
                             ::cohort::concat(check_a_, " against ", check_b_)); \
  } while (false)

#define COHORT_CHECK_EQ(a, b) COHORT_CHECK_OP(a, ==, b)
#define COHORT_CHECK_NE(a, b) COHORT_CHECK_OP(a, !=, b)
#define COHORT_CHECK_LE(a, b) COHORT_CHECK_OP(a, <=, b)
#define COHORT_CHECK_LT(a, b) COHORT_CHECK_OP(a, <, b)
#define COHORT_CHECK_GE(a, b) COHORT_CHECK_OP(a, >=, b)
#define COHORT_CHECK_GT(a, b) COHORT_CHECK_OP(a, >, b)

}  // namespace cohort
