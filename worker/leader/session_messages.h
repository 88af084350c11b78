// SPDX-License-Identifier: Apache-2.0
// Between the messages of comm/wire/replica.proto and the values of the leader.
#pragma once
#include "comm/wire/replica.pb.h"
#include "worker/leader/batch_loop.h"
#include "worker/leader/sequence.h"
#include "worker/leader/session.h"

namespace cohort {

replica::v1::Token to_wire(const SampledToken& sampled);
replica::v1::FinishReason to_wire(FinishReason reason);
replica::v1::RankInfo to_wire(const RankState& rank);
// Without live requests.
replica::v1::Hello to_wire(const ReplicaDescription& description);
// Without epoch, sequence number, ranks and draining.
replica::v1::Load to_wire(const LoadReport& report);
// Layers up to kMostExpertCounts numbers in all.
replica::v1::Experts to_wire(const ExpertReport& report);
// Taken as it is: Scheduler::admit checks values.
SequenceRequest from_wire(const replica::v1::Submit& submit);

}  // namespace cohort
