#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/data/smollm2_logits.json: logits of SmolLM2-135M-Instruct (Q4_1 GGUF, dequantized).

The oracle is transformers in f32 on the CPU. For each position of a short prompt: the five best
tokens and the logit of every 4096th token.

Needs: torch, transformers, gguf, accelerate. Usage: make_smollm2_logits.py PATH_OF_GGUF
"""

import hashlib
import json
import pathlib
import sys

import torch
import transformers

IDS = [504, 1296, 3003, 14797, 359, 2382, 28]  # "The three primary colours are red,"


def main():
    path = pathlib.Path(sys.argv[1]).resolve()
    model = transformers.AutoModelForCausalLM.from_pretrained(
        str(path.parent), gguf_file=path.name, dtype=torch.float32).eval()
    with torch.no_grad():
        logits = model(torch.tensor([IDS])).logits[0]
    positions = []
    for row in logits:
        best = row.topk(5)
        positions.append({"best": best.indices.tolist(),
                          "best_logits": [round(x, 4) for x in best.values.tolist()],
                          "every_4096th": [round(x, 4) for x in row[::4096].tolist()]})
    record = {
        "script": "tests/reference/make_smollm2_logits.py",
        "oracle": f"transformers {transformers.__version__}, torch {torch.__version__}, f32, CPU",
        "sha256_of_gguf": hashlib.sha256(path.read_bytes()).hexdigest(),
        "ids": IDS,
        "positions": positions,
    }
    output = pathlib.Path(__file__).resolve().parent.parent / "data/smollm2_logits.json"
    text = json.dumps(record).replace('{"best"', '\n {"best"')
    output.write_text(text + "\n")


if __name__ == "__main__":
    main()
