#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the models of tests/data/tiny_models that are not Llamas: experts, latent attention, biases
and norms of queries and keys, with expected logits. Same form and oracle as make_tiny_models.py.

A prompt is also drawn again where a choice of experts is a close call for any of its tokens or
those of its continuation.

Needs: torch, transformers, gguf.
Usage: make_tiny_expert_models.py [OUTPUT_FOLDER [NAME...]]
"""

import json
import pathlib
import shutil
import sys

import gguf
import torch
import transformers
from transformers import (DeepseekV2Config, DeepseekV2ForCausalLM, DeepseekV3Config,
                          DeepseekV3ForCausalLM, MixtralConfig, MixtralForCausalLM, OlmoeConfig,
                          OlmoeForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen2MoeConfig,
                          Qwen2MoeForCausalLM, Qwen3Config, Qwen3ForCausalLM, Qwen3MoeConfig,
                          Qwen3MoeForCausalLM)

import make_tiny_models as tiny

SEED = 20241103
# Least difference between the score of a chosen expert (or group) and of one that is not chosen;
# softmax scores are compared by their logarithms.
LEAST_MARGIN = 2e-3

COMMON = dict(tiny.COMMON, hidden_size=64, num_attention_heads=4, num_hidden_layers=2,
              rms_norm_eps=1e-6, tie_word_embeddings=False)
PLAIN_ROPE = dict(rope_type="default", rope_theta=10000.0)
LATENT = dict(num_key_value_heads=4, kv_lora_rank=32, qk_nope_head_dim=16, qk_rope_head_dim=8,
              v_head_dim=12, intermediate_size=48, moe_intermediate_size=16, n_routed_experts=8)


def yarn(**more):
    """An original context so short that prompts reach past it, and every kind of pair occurs."""
    return dict(rope_type="yarn", rope_theta=10000.0, factor=8.0, beta_fast=4.0, beta_slow=1.0,
                original_max_position_embeddings=64, **more)


# name -> (model, config, also as GGUF)
VARIANTS = {
    # narrow, so that both files stay small
    "mixtral": (MixtralForCausalLM, MixtralConfig(**{
        **COMMON, "hidden_size": 48, "tie_word_embeddings": True}, head_dim=16,
        num_key_value_heads=2, intermediate_size=24, num_local_experts=6, num_experts_per_tok=2,
        rope_parameters=dict(rope_type="default", rope_theta=1000000.0)), True),
    # biases; attention multiplied by YaRN's factor
    "qwen2": (Qwen2ForCausalLM, Qwen2Config(
        **COMMON, num_key_value_heads=2, intermediate_size=80, rope_parameters=yarn()), False),
    # norms of heads that are wider than hidden / heads; a tied head
    "qwen3": (Qwen3ForCausalLM, Qwen3Config(
        **{**COMMON, "tie_word_embeddings": True}, head_dim=32, num_key_value_heads=2,
        intermediate_size=80, rope_parameters=PLAIN_ROPE), False),
    # a gated shared expert; the second of three layers is dense
    "qwen2_moe": (Qwen2MoeForCausalLM, Qwen2MoeConfig(
        **{**COMMON, "num_hidden_layers": 3}, num_key_value_heads=2, intermediate_size=48,
        moe_intermediate_size=24, shared_expert_intermediate_size=40, num_experts=6,
        num_experts_per_tok=2, norm_topk_prob=False, mlp_only_layers=[1],
        rope_parameters=PLAIN_ROPE), False),
    # every second layer has experts
    "qwen3_moe": (Qwen3MoeForCausalLM, Qwen3MoeConfig(
        **{**COMMON, "num_hidden_layers": 3}, head_dim=16, num_key_value_heads=2,
        intermediate_size=48, moe_intermediate_size=24, num_experts=8, num_experts_per_tok=2,
        norm_topk_prob=True, decoder_sparse_step=2, rope_parameters=PLAIN_ROPE), False),
    # norms over whole rows
    "olmoe": (OlmoeForCausalLM, OlmoeConfig(
        **{**COMMON, "rms_norm_eps": 1e-5}, num_key_value_heads=2, intermediate_size=24,
        num_experts=8, num_experts_per_tok=2, norm_topk_prob=False, rope_parameters=PLAIN_ROPE),
        False),
    # latent queries, groups by their best expert, YaRN with both magnitudes
    "deepseek_v2": (DeepseekV2ForCausalLM, DeepseekV2Config(
        **COMMON, **LATENT, q_lora_rank=24, n_shared_experts=2, num_experts_per_tok=3, n_group=4,
        topk_group=2, topk_method="group_limited_greedy", routed_scaling_factor=1.5,
        first_k_dense_replace=1, rope_parameters=yarn(mscale=1.0, mscale_all_dim=0.7)), False),
    # plain queries, no groups
    "deepseek_v2_lite": (DeepseekV2ForCausalLM, DeepseekV2Config(
        **COMMON, **LATENT, q_lora_rank=None, n_shared_experts=2, num_experts_per_tok=2, n_group=1,
        topk_group=1, topk_method="greedy", routed_scaling_factor=1.0, first_k_dense_replace=1,
        rope_parameters=PLAIN_ROPE), False),
    # sigmoid, bias of the choice, groups by their two best experts
    "deepseek_v3": (DeepseekV3ForCausalLM, DeepseekV3Config(
        **{**COMMON, "num_hidden_layers": 3}, **LATENT, q_lora_rank=24, n_shared_experts=1,
        num_experts_per_tok=2, n_group=4, topk_group=2, routed_scaling_factor=2.5,
        norm_topk_prob=True, first_k_dense_replace=1,
        rope_parameters=yarn(mscale=1.0, mscale_all_dim=1.0)), False),
}


def fill(model, generator):
    """Weights such that activations stay near 1, and logits and routers' scores spread."""
    head_scale, router_scale = 3.0, 2.0
    tied = model.config.tie_word_embeddings
    tensors = list(model.named_parameters())
    tensors += [(n, t) for n, t in model.named_buffers() if "e_score_correction_bias" in n]
    with torch.no_grad():
        for name, tensor in tensors:
            noise = torch.randn(tensor.shape, generator=generator, dtype=torch.float32)
            columns = tensor.shape[-1] ** 0.5
            if "bias" in name:
                tensor.copy_(0.2 * noise)
            elif tensor.dim() == 1:
                tensor.copy_(1 + 0.1 * noise)
            elif "embed_tokens" in name:
                tensor.copy_(noise * (head_scale / columns if tied else 1.0))
            elif "lm_head" in name:
                tensor.copy_(noise * head_scale / columns)
            elif name.endswith("mlp.gate.weight"):
                tensor.copy_(noise * router_scale / columns)
            else:
                tensor.copy_(noise / columns)


def margin(scores, chosen):
    """[tokens, n] -> the least difference between the chosen-th largest and the next."""
    if chosen >= scores.shape[-1]:
        return float("inf")
    top = scores.topk(chosen + 1, dim=-1).values
    return (top[:, -2] - top[:, -1]).min().item()


class Margins:
    """Watches all routers of a model."""

    def __init__(self, model):
        self.config, self.least = model.config, float("inf")
        for name, module in model.named_modules():
            if name.endswith("mlp.gate"):
                module.register_forward_hook(self.see)

    def see(self, module, _, output):
        logits = output[0].detach().to(torch.float32).reshape(-1, output[0].shape[-1])
        config = self.config
        third = isinstance(config, DeepseekV3Config)
        grouped = third or getattr(config, "topk_method", "") == "group_limited_greedy"
        scores = logits.log_softmax(-1)
        if third:
            scores = logits.sigmoid() + module.e_score_correction_bias
        if grouped:
            members = scores.reshape(len(scores), config.n_group, -1)
            groups = members.topk(2 if third else 1, dim=-1).values.sum(-1)
            self.least = min(self.least, margin(groups, config.topk_group))
            kept = torch.zeros_like(groups).scatter(1, groups.topk(config.topk_group).indices, 1)
            members = members.masked_fill(kept.unsqueeze(-1) == 0, float("-inf"))
            scores = members.reshape(scores.shape)
        self.least = min(self.least, margin(scores, config.num_experts_per_tok))


def expectations(model, generator, folder, about):
    """Expected logits of a model that is in f32 and has the weights that were saved."""
    prompts, logits, offset = [], [], 0
    margins = Margins(model)
    with torch.no_grad():
        for length in tiny.PROMPT_LENGTHS:
            lead = 0
            while lead < tiny.LEAST_LEAD or margins.least < LEAST_MARGIN:
                margins.least = float("inf")
                ids = torch.randint(3, tiny.VOCAB, (length,), generator=generator).tolist()
                # Most draws fail here, before the long way through the continuation.
                model(torch.tensor([ids]))
                if margins.least < LEAST_MARGIN:
                    continue
                continuation, lead = tiny.greedy(model, ids)
            values = model(torch.tensor([ids])).logits[0].to(torch.float32).numpy()
            entry = {"ids": ids, "logits_offset": offset, "greedy": continuation,
                     "smallest_lead": round(lead, 5)}
            if margins.least != float("inf"):
                entry["smallest_router_margin"] = round(margins.least, 6)
            prompts.append(entry)
            logits.append(values.astype("<f4").tobytes())
            offset += values.size
    (folder / "expected.bin").write_bytes(b"".join(logits))
    record = {"script": "tests/reference/make_tiny_expert_models.py", **about, "vocab": tiny.VOCAB,
              "logits": "expected.bin: f32, [tokens, vocab] from element logits_offset",
              "prompts": prompts}
    text = json.dumps(record)
    text = text.replace('{"ids"', '\n  {"ids"').replace('"greedy"', '\n   "greedy"')
    (folder / "expected.json").write_text(text + "\n")


def gguf_tensors(model):
    """name -> values in f32, as the file holds them."""
    config = model.config
    for name, tensor in model.state_dict().items():
        value = tensor.to(torch.float32).numpy()
        block = name.replace("model.layers.", "blk.").split(".mlp.")[0]
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        if name.endswith("mlp.gate.weight"):
            yield block + ".ffn_gate_inp.weight", value
        elif name.endswith("mlp.experts.gate_up_proj"):
            half = value.shape[1] // 2
            yield block + ".ffn_gate_exps.weight", value[:, :half].copy()
            yield block + ".ffn_up_exps.weight", value[:, half:].copy()
        elif name.endswith("mlp.experts.down_proj"):
            yield block + ".ffn_down_exps.weight", value
        else:
            if "q_proj" in name:
                value = tiny.to_neighbours(value, config.num_attention_heads)
            if "k_proj" in name:
                value = tiny.to_neighbours(value, config.num_key_value_heads)
            yield tiny.gguf_name(name), value


def save_mixtral_gguf(model, tokenizer, path):
    config = model.config
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_name("tiny " + path.stem)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_vocab_size(config.vocab_size)
    writer.add_expert_count(config.num_local_experts)
    writer.add_expert_used_count(config.num_experts_per_tok)
    tiny.add_gguf_tokenizer(writer, tokenizer)
    for name, value in gguf_tensors(model):
        if value.ndim == 1 or "ffn_gate_inp" in name:
            writer.add_tensor(name, value)
            continue
        # Exact: the values are bf16 already.
        packed = gguf.quants.quantize(value, gguf.GGMLQuantizationType.BF16)
        writer.add_tensor(name, packed, raw_dtype=gguf.GGMLQuantizationType.BF16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def make(name, number, output, tokenizer):
    kind, config, also_gguf = VARIANTS[name]
    folder = output / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    generator = torch.Generator().manual_seed(SEED + number)
    model = kind(config).eval()
    fill(model, generator)
    model.to(torch.bfloat16).save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    tiny.save_tokenizer(tokenizer, folder)
    # Read back: a model that was converted to bf16 keeps its rotation frequencies in bf16 as well.
    model = kind.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    if also_gguf:
        save_mixtral_gguf(model, tokenizer, folder / (name + ".gguf"))
    expectations(model, generator, folder, {
        "variant": name, "seed": SEED + number, "storage": "bfloat16",
        "oracle": f"transformers {transformers.__version__}, torch {torch.__version__}, f32, CPU"})


def main():
    here = pathlib.Path(__file__).resolve().parent
    output = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here.parent / "data/tiny_models"
    names = sys.argv[2:] or list(VARIANTS)
    torch.set_num_threads(1)
    tokenizer = tiny.make_tokenizer()
    for number, name in enumerate(VARIANTS):
        if name not in names:
            continue
        make(name, number, output, tokenizer)
        size = sum(f.stat().st_size for f in (output / name).iterdir())
        print(f"{name}: {size} bytes, {sorted(f.name for f in (output / name).iterdir())}")


if __name__ == "__main__":
    main()
