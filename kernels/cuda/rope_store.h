// SPDX-License-Identifier: Apache-2.0
// Rotation after a norm of each head, as some model families have it. Kernels/ops.h has the plain
// form.
#pragma once
#include "base/stream.h"
#include "base/tensor.h"
#include "kernels/attention_batch.h"
#include "kernels/kv_layout.h"
#include "kernels/rope_table.h"

namespace cohort::cuda {

// ops::rope_store, but q and k of each head are first normalised as by rms_norm, over the head's
// dimensions. q_weight and k_weight [dim] f32, in device memory, aligned to 16 bytes; the same for
// all heads. Between norm and rotation values are f32.
void qk_norm_rope_store(Stream& stream, Tensor q_out, const KvLayer& kv, Tensor qkv,
                        const AttentionBatch& batch, const RopeTable& rope, const float* q_weight,
                        const float* k_weight, float eps);

}  // namespace cohort::cuda
