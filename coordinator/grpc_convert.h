// SPDX-License-Identifier: Apache-2.0
// Between the messages of cohort.v1 and the values of the core.
#pragma once
#include <variant>

#include "comm/wire/inference.pb.h"
#include "coordinator/request.h"
#include "coordinator/response_sink.h"

namespace cohort {

// Everything is checked; the failure names the field.
std::variant<GenerateRequest, Failure> from_wire(const v1::GenerateRequest& in,
                                                 const RequestLimits& limits, int vocab);
v1::GenerateResponse to_wire(const OutputDelta& delta);
void fill(const Usage& usage, v1::Usage& out);

}  // namespace cohort
