# SPDX-License-Identifier: Apache-2.0
"""Eight prompts of different lengths and scripts; the last is longer than one prefill chunk."""
PROMPTS = [
    "The capital of France is",
    "def fibonacci(n):\n    ",
    "Once upon a time, in a village by the sea,",
    "Q: What is 12 * 12?\nA:",
    "日本の首都は",
    "The quick brown fox jumps over the lazy dog. The lazy dog",
    "Ingredients for pancakes:\n- flour\n- eggs\n-",
    " ".join(f"Item {i}: the number {i} squared is {i * i}." for i in range(1, 25)) + " Item 25:",
]
GREEDY = dict(temperature=0, max_tokens=64, logprobs=1, ignore_eos=True)


def seeded(index):
    return dict(temperature=0.9, top_p=0.95, top_k=50, seed=1000 + index, max_tokens=64, logprobs=1,
                ignore_eos=True)
