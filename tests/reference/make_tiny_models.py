#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/data/tiny_models: random models of every Llama variant, with expected logits.

The oracle is transformers on the CPU in f32. Every folder can be served: it holds config, weights,
a byte-level BPE tokenizer with a chat template, and

  expected.json  how it was made; prompts (token ids), where their logits lie in expected.bin, and
                 a greedy continuation with the smallest lead of a chosen token over the next best
  expected.bin   f32, little endian: for each prompt [tokens, vocab]

Needs: torch, transformers, gguf.
Usage: make_tiny_models.py [OUTPUT_FOLDER]
"""

import json
import pathlib
import shutil
import sys

import gguf
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM

SEED = 20240917
VOCAB = 272
END_OF_TEXT, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
PROMPT_LENGTHS = (5, 13, 34)
GREEDY_TOKENS = 24
# Prompts whose greedy continuation is a closer call are drawn again: sums in another order must not
# be able to change it.
LEAST_LEAD = 0.02

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)

# Our own words: the merges only have to be plausible.
CORPUS = [
    "the workers of a replica share one model and the coordinator hands out requests to them",
    "each rank holds a shard of every matrix, and the ranks add their partial sums in one order",
    "a request is a prompt and a limit; the answer is a stream of tokens that ends only once",
    "when a host goes away the streams go on elsewhere, and the reader of the text sees nothing",
]

COMMON = dict(vocab_size=VOCAB, max_position_embeddings=512, bos_token_id=1, eos_token_id=2,
              pad_token_id=0, use_cache=True)

# name -> (config, storage type, largest shard, also as GGUF)
VARIANTS = {
    # every head has keys of its own
    "llama2": (LlamaConfig(
        hidden_size=64, intermediate_size=80, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=4, rms_norm_eps=1e-5, tie_word_embeddings=False,
        rope_parameters=dict(rope_type="default", rope_theta=10000.0), **COMMON),
        torch.float32, None, False),
    # grouped heads; an original context so short that every kind of scaling occurs
    "llama3": (LlamaConfig(
        hidden_size=64, intermediate_size=80, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, rms_norm_eps=1e-5, tie_word_embeddings=False,
        rope_parameters=dict(rope_type="llama3", rope_theta=10000.0, factor=8.0,
                             low_freq_factor=1.0, high_freq_factor=4.0,
                             original_max_position_embeddings=64), **COMMON),
        torch.float32, None, False),
    # 9 query heads over 3, the head is the embedding table
    "smollm2": (LlamaConfig(
        hidden_size=72, head_dim=16, intermediate_size=80, num_hidden_layers=2,
        num_attention_heads=9, num_key_value_heads=3, rms_norm_eps=1e-5, tie_word_embeddings=True,
        rope_parameters=dict(rope_type="default", rope_theta=100000.0), **COMMON),
        torch.float32, None, False),
    # 4 groups, positions scaled linearly, several files with an index
    "tinyllama": (LlamaConfig(
        hidden_size=64, head_dim=16, intermediate_size=72, num_hidden_layers=2,
        num_attention_heads=8, num_key_value_heads=4, rms_norm_eps=1e-5,
        tie_word_embeddings=False,
        rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=2.0), **COMMON),
        torch.float32, "160KB", False),
    # heads wider than hidden / heads, a window of attention
    "mistral": (MistralConfig(
        hidden_size=64, head_dim=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, rms_norm_eps=1e-5, sliding_window=256,
        tie_word_embeddings=False,
        rope_parameters=dict(rope_type="default", rope_theta=1000000.0), **COMMON),
        torch.float32, None, False),
    # 16-bit weights, a tied head, and the same model as a GGUF file
    "llama3_bf16": (LlamaConfig(
        hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, rms_norm_eps=1e-5, tie_word_embeddings=True,
        rope_parameters=dict(rope_type="llama3", rope_theta=500000.0, factor=32.0,
                             low_freq_factor=1.0, high_freq_factor=4.0,
                             original_max_position_embeddings=128), **COMMON),
        torch.bfloat16, None, True),
}


def make_tokenizer():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False),
    ])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB, show_progress=False, special_tokens=[END_OF_TEXT, START, END],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.train_from_iterator(CORPUS, trainer)
    assert tokenizer.get_vocab_size() == VOCAB
    assert [tokenizer.token_to_id(t) for t in (END_OF_TEXT, START, END)] == [0, 1, 2]
    return tokenizer


def save_tokenizer(tokenizer, folder):
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": START,
        "eos_token": END,
        "add_bos_token": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": COMMON["max_position_embeddings"],
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=1) + "\n")


def fill(model, generator):
    """Weights such that activations stay near 1 and logits spread over several units."""
    head_scale = 3.0
    tied = model.config.tie_word_embeddings
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            noise = torch.randn(tensor.shape, generator=generator, dtype=torch.float32)
            if tensor.dim() == 1:
                tensor.copy_(1 + 0.1 * noise)
            elif "embed_tokens" in name:
                tensor.copy_(noise * (head_scale / tensor.shape[1] ** 0.5 if tied else 1.0))
            elif "lm_head" in name:
                tensor.copy_(noise * head_scale / tensor.shape[1] ** 0.5)
            else:
                tensor.copy_(noise / tensor.shape[1] ** 0.5)


def greedy(model, prompt):
    ids, lead = list(prompt), float("inf")
    for _ in range(GREEDY_TOKENS):
        best = model(torch.tensor([ids])).logits[0, -1].topk(2)
        lead = min(lead, (best.values[0] - best.values[1]).item())
        ids.append(best.indices[0].item())
    return ids[len(prompt):], lead


def expectations(model, generator, folder, about):
    """Expected logits of a model that is in f32 and has the weights that were saved."""
    prompts, logits, offset = [], [], 0
    with torch.no_grad():
        for length in PROMPT_LENGTHS:
            lead = 0
            while lead < LEAST_LEAD:
                ids = torch.randint(3, VOCAB, (length,), generator=generator).tolist()
                continuation, lead = greedy(model, ids)
            values = model(torch.tensor([ids])).logits[0].to(torch.float32).numpy()
            prompts.append({"ids": ids, "logits_offset": offset, "greedy": continuation,
                            "smallest_lead": round(lead, 5)})
            logits.append(values.astype("<f4").tobytes())
            offset += values.size
    (folder / "expected.bin").write_bytes(b"".join(logits))
    record = {"script": "tests/reference/make_tiny_models.py", **about, "vocab": VOCAB,
              "logits": "expected.bin: f32, [tokens, vocab] from element logits_offset",
              "prompts": prompts}
    text = json.dumps(record)
    text = text.replace('{"ids"', '\n  {"ids"').replace('"greedy"', '\n   "greedy"')
    (folder / "expected.json").write_text(text + "\n")


def to_neighbours(weight, heads):
    """Rows of a head reordered from halves (i, i + n/2) to neighbours (2i, 2i + 1)."""
    rows, columns = weight.shape
    return (weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2)
            .reshape(rows, columns))


def gguf_name(name):
    fixed = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
    parts = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q",
             "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
             "self_attn.o_proj": "attn_output", "post_attention_layernorm": "ffn_norm",
             "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
    stem = name.removesuffix(".weight")
    if stem in fixed:
        return fixed[stem] + ".weight"
    _, _, layer, part = stem.split(".", 3)
    return f"blk.{layer}.{parts[part]}.weight"


def add_gguf_tokenizer(writer, tokenizer):
    content = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(content["vocab"], key=content["vocab"].get)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.CONTROL if i < 3 else gguf.TokenType.NORMAL
                            for i in range(len(tokens))])
    writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in content["merges"]])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)


def save_gguf(model, tokenizer, path):
    config = model.config
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_name("tiny " + path.stem)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_vocab_size(config.vocab_size)
    add_gguf_tokenizer(writer, tokenizer)
    # The scaling as divisors of the unscaled frequencies, both as transformers computes them.
    plain = 1.0 / config.rope_parameters["rope_theta"] ** (
        torch.arange(0, config.head_dim, 2, dtype=torch.float64) / config.head_dim)
    scaled = model.model.rotary_emb.inv_freq.to(torch.float64)
    writer.add_tensor("rope_freqs.weight", (plain / scaled).to(torch.float32).numpy())
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        value = tensor.to(torch.float32).numpy()
        if "q_proj" in name:
            value = to_neighbours(value, config.num_attention_heads)
        if "k_proj" in name:
            value = to_neighbours(value, config.num_key_value_heads)
        if tensor.dim() == 1:
            writer.add_tensor(gguf_name(name), value)
            continue
        # Exact: the values are bf16 already.
        packed = gguf.quants.quantize(value, gguf.GGMLQuantizationType.BF16)
        writer.add_tensor(gguf_name(name), packed, raw_dtype=gguf.GGMLQuantizationType.BF16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def make(name, number, output, tokenizer):
    config, dtype, shard, also_gguf = VARIANTS[name]
    folder = output / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    kind = MistralForCausalLM if isinstance(config, MistralConfig) else LlamaForCausalLM
    generator = torch.Generator().manual_seed(SEED + number)
    model = kind(config).eval()
    fill(model, generator)
    arguments = {"max_shard_size": shard} if shard else {}
    model.to(dtype).save_pretrained(folder, **arguments)
    (folder / "generation_config.json").unlink(missing_ok=True)
    save_tokenizer(tokenizer, folder)
    # Read back: a model that was converted to bf16 keeps its rotation frequencies in bf16 as well.
    model = kind.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    if also_gguf:
        save_gguf(model, tokenizer, folder / (name + ".gguf"))
    expectations(model, generator, folder, {
        "variant": name, "seed": SEED + number, "storage": str(dtype).removeprefix("torch."),
        "oracle": f"transformers {transformers.__version__}, torch {torch.__version__}, f32, CPU"})


def main():
    here = pathlib.Path(__file__).resolve().parent
    output = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here.parent / "data/tiny_models"
    torch.manual_seed(SEED)
    tokenizer = make_tokenizer()
    for number, name in enumerate(VARIANTS):
        make(name, number, output, tokenizer)
        size = sum(f.stat().st_size for f in (output / name).iterdir())
        print(f"{name}: {size} bytes, {sorted(f.name for f in (output / name).iterdir())}")


if __name__ == "__main__":
    main()
