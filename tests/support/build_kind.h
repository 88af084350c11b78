// SPDX-License-Identifier: Apache-2.0
// How this build was made, for tests with a bound on time.
#pragma once

namespace cohort {

// What a test times may take so many times longer: a sanitizer is no part of what is promised.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr int kSlack = 20;
#else
inline constexpr int kSlack = 1;
#endif

}  // namespace cohort
