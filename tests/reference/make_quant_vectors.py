#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/data/quant_vectors.bin: random blocks of every weight type and their values.

The oracle is the Python package `gguf` (quants.dequantize, NumPy). Scales are random halves of
moderate size, everything else is random bits, so that every bit pattern of quants and sub-scales
occurs. Layout, little endian, repeated until the end of the file:

  u32 length, type name; u32 elements; u32 bytes, the blocks; elements * f32, the values

Needs: gguf, numpy. Usage: make_quant_vectors.py [OUTPUT_FILE]
"""

import importlib.metadata
import json
import pathlib
import struct
import sys

import gguf
import numpy

SEED = 5100
BLOCKS = 6

# type -> (elements of a block, bytes of a block, byte offsets of its f16 scales)
TYPES = {
    "F32": (1, 4, []),
    "F16": (1, 2, [0]),
    "BF16": (1, 2, []),
    "Q8_0": (32, 34, [0]),
    "Q4_0": (32, 18, [0]),
    "Q4_1": (32, 20, [0, 2]),
    "Q5_0": (32, 22, [0]),
    "Q5_1": (32, 24, [0, 2]),
    "Q4_K": (256, 144, [0, 2]),
    "Q5_K": (256, 176, [0, 2]),
    "Q6_K": (256, 210, [208]),
}


def make_blocks(random, name):
    elements, size, scales = TYPES[name]
    count = BLOCKS if elements > 1 else 64
    if name in ("F32", "BF16"):
        values = random.normal(size=count).astype("<f4")
        blocks = values.view(numpy.uint8).reshape(count, 4)
        return numpy.ascontiguousarray(blocks if name == "F32" else blocks[:, 2:])
    blocks = random.integers(0, 256, size=(count, size), dtype=numpy.uint8)
    for at in scales:
        # from denormal halves to several units, both signs
        exponents = random.uniform(-22, 3, size=count)
        values = (numpy.exp2(exponents) * random.choice([-1, 1], size=count)).astype("<f2")
        blocks[:, at:at + 2] = values.view(numpy.uint8).reshape(count, 2)
    return blocks


def main():
    here = pathlib.Path(__file__).resolve().parent
    output = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here.parent / "data/quant_vectors.bin"
    random = numpy.random.default_rng(SEED)
    out = bytearray()
    for name in TYPES:
        blocks = make_blocks(random, name)
        kind = gguf.GGMLQuantizationType[name]
        assert gguf.GGML_QUANT_SIZES[kind] == TYPES[name][:2]
        if name in ("F32", "F16"):
            values = blocks.reshape(-1).view("<f4" if name == "F32" else "<f2")
        else:
            values = gguf.quants.dequantize(blocks, kind)
        values = values.astype("<f4").reshape(-1)
        lower = name.lower().encode()
        out += struct.pack("<I", len(lower)) + lower
        out += struct.pack("<II", values.size, blocks.size) + blocks.tobytes() + values.tobytes()
    output.write_bytes(bytes(out))
    record = {"script": "tests/reference/make_quant_vectors.py", "seed": SEED,
              "oracle": f"gguf {importlib.metadata.version('gguf')}, numpy {numpy.__version__}"}
    output.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
