// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace cohort {

// Of the source tree; the same as in the top-level CMakeLists.txt.
inline constexpr const char* kVersion = "0.1.0";

}  // namespace cohort
