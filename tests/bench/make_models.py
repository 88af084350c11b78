#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the models that compare_peers.py measures, as GGUF files; needs the Python packages gguf and numpy.

    make_models.py requantize SOURCE.gguf TYPE OUT.gguf     the same weights in another type (Q8_0, BF16, Q4_0 ..)
    make_models.py random-1b SOURCE.gguf TYPE OUT.gguf      random weights in the shape of Llama-3.2-1B, the
                                                            tokenizer of SOURCE with unused tokens behind it

Vectors stay f32. Random weights are good for speed alone.
"""
import sys

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter
from gguf.quants import dequantize, quantize

SHAPE_1B = dict(blocks=16, hidden=2048, ffn=8192, heads=32, kv_heads=8, vocab=128256, context=131072)


def copy_fields(reader, writer, prefixes):
    for field in reader.fields.values():
        if not field.name.startswith(prefixes) or field.name == "general.architecture":
            continue
        kind = field.types[0]
        sub_type = field.types[-1] if kind == GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), kind, sub_type)


def add(writer, name, values, kind):
    """values: f32 [rows, columns] or a vector."""
    if values.ndim == 1:
        writer.add_tensor(name, values.astype(np.float32))
    else:
        writer.add_tensor(name, quantize(values, kind), raw_dtype=kind)


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def requantize(source, kind, out):
    reader, writer = GGUFReader(source), GGUFWriter(out, "llama")
    copy_fields(reader, writer, ("general.", "llama.", "tokenizer."))
    for tensor in reader.tensors:
        values = dequantize(tensor.data, tensor.tensor_type)
        add(writer, tensor.name, values.reshape([int(n) for n in reversed(tensor.shape)]), kind)
    finish(writer)


def padded_tokenizer(reader, writer, vocab):
    copy_fields(reader, writer, ("tokenizer.ggml.pre", "tokenizer.ggml.model", "tokenizer.ggml.merges",
                                 "tokenizer.ggml.bos", "tokenizer.ggml.eos", "tokenizer.ggml.add", "tokenizer.chat"))
    tokens = reader.fields["tokenizer.ggml.tokens"].contents()
    types = reader.fields["tokenizer.ggml.token_type"].contents()
    unused = 5
    writer.add_token_list(tokens + [f"<unused_{i}>" for i in range(vocab - len(tokens))])
    writer.add_token_types(types + [unused] * (vocab - len(types)))


def random_1b(source, kind, out):
    s, generator = SHAPE_1B, np.random.default_rng(1)
    reader, writer = GGUFReader(source), GGUFWriter(out, "llama")
    writer.add_name(f"random weights in Llama-3.2-1B shape, {kind.name}")
    writer.add_block_count(s["blocks"])
    writer.add_context_length(s["context"])
    writer.add_embedding_length(s["hidden"])
    writer.add_feed_forward_length(s["ffn"])
    writer.add_head_count(s["heads"])
    writer.add_head_count_kv(s["kv_heads"])
    writer.add_rope_freq_base(500000.0)
    writer.add_rope_dimension_count(s["hidden"] // s["heads"])
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(s["vocab"])
    padded_tokenizer(reader, writer, s["vocab"])

    def matrix(name, rows, columns):
        values = generator.standard_normal((rows, columns), dtype=np.float32) * np.float32(columns**-0.5)
        add(writer, f"{name}.weight", values, kind)

    kv = s["kv_heads"] * s["hidden"] // s["heads"]
    matrix("token_embd", s["vocab"], s["hidden"])
    for b in range(s["blocks"]):
        for name, rows, columns in (("attn_q", s["hidden"], s["hidden"]), ("attn_k", kv, s["hidden"]),
                                    ("attn_v", kv, s["hidden"]), ("attn_output", s["hidden"], s["hidden"]),
                                    ("ffn_gate", s["ffn"], s["hidden"]), ("ffn_up", s["ffn"], s["hidden"]),
                                    ("ffn_down", s["hidden"], s["ffn"])):
            matrix(f"blk.{b}.{name}", rows, columns)
        for name in ("attn_norm", "ffn_norm"):
            add(writer, f"blk.{b}.{name}.weight", np.ones(s["hidden"], np.float32), kind)
    add(writer, "output_norm.weight", np.ones(s["hidden"], np.float32), kind)
    finish(writer)


def main():
    command, source, kind, out = sys.argv[1:5]
    {"requantize": requantize, "random-1b": random_1b}[command](source, GGMLQuantizationType[kind], out)


if __name__ == "__main__":
    main()
