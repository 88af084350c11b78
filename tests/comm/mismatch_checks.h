// SPDX-License-Identifier: Apache-2.0
// Checks of the suite: ranks that do not run the same thing. Every rank must name both sides.
#pragma once
#include "comm/communicator.h"

namespace cohort::mismatch {

void different_verbs(World& world);
void different_sizes(World& world);
void all_to_all_sizes(World& world);
void a_skipped_collective(World& world);
void swapped_collectives(World& world);
void equal_collectives_of_different_layers(World& world);
void different_steps(World& world);
void numbers_start_anew_in_a_step(World& world);
void a_rank_that_stays_behind(World& world);

}  // namespace cohort::mismatch
