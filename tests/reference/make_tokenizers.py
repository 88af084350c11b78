#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains small tokenizers with the Python package `tokenizers` and records what that package makes
of many texts: tests/data/tokenizers/NAME.json (a tokenizer.json) and NAME.expected.json.

usage: make_tokenizers.py [FOLDER]     (needs: pip install tokenizers==0.23.3)
The same version and seed give the same files."""
import json
import pathlib
import random
import sys

import tokenizers
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers,
                        pre_tokenizers, processors, trainers)

SEED = 20240817
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
          r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
         r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
         r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK3 = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|"
             "[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|"
             "\\s*[\r\n]+|\\s+(?!\\S)|\\s+")

SENTENCES = [
    "The quick brown fox jumps over the lazy dog, doesn't it? I'VE seen it; we'll see it AGAIN.",
    "In 1984, 3.14159 and 1,234,567 were numbers; 42nd, v2.0.1 and 0xDEADBEEF were something else.",
    "for (size_t i = 0; i < n; ++i) {\n\tsum += values[i] * 2;  // twice\n}\r\n\r\nreturn sum;\n",
    "def f(x):\n    if x is None:\n        return {'a': [1, 2, 3]}\n    return f(x - 1) ** 2\n",
    "Größe, Straße, naïve café, cafe\u0301, A\u030angstro\u0308m, ﬁn, Ⅷ, ½, x²", 
    "数据库在北京，我们今天学习分布式推理。東京タワーは高いです。한국어 문장도 있습니다.",
    "مرحبا بالعالم، كيف حالك؟ שלום עולם 123 مرحبا ١٢٣٤٥",
    "Привет, мир! Съешь ещё этих мягких французских булок. Ελληνικά γράμματα.",
    "नमस्ते दुनिया, हम तेज़ हैं। ภาษาไทยไม่มีช่องว่าง ខ្មែរ",
    "😀👍🏽 👩‍👩‍👧‍👦 🇩🇪🇯🇵 ❤️ 🏳️‍🌈 flags and families 🤖🤖🤖",
    "  two  spaces   three    four\t\ttabs \u00a0nbsp\u3000wide\u2028line\u180emongol\u200bzero\u0085nel ",
    "\n\n\n\nlines\n \n  \r\n\r\rmixed   \n",
    "camelCaseWords HTTPServerError iPhone ǅungla ŉ ſ İstanbul DŽ 'S 'ſ 'LL",
    "https://example.com/a?b=c&d=%20#e user@mail.org C:\\path\\file.txt ~/x && y || !z",
]
SPECIALS = ["<|begin|>", "<|end|>", "<|im_start|>", "<|im_end|>"]


def corpus(rng):
    texts = list(SENTENCES)
    words = [w for s in SENTENCES for w in s.split(" ")]
    for _ in range(400):
        texts.append(" ".join(rng.choice(words) for _ in range(rng.randint(3, 20))))
    return texts


ALPHABETS = ["abcXYZ '", "0123456789.,", " \t\n\r\u00a0\u3000", "äßéΩжא١あ漢한😀\u0301\u200d", "<|>imstartend_ \n",
             "!?()[]{}'\"`~^$%/\\", "▁ a<0xF>"]


def random_text(rng):
    parts = []
    for _ in range(rng.randint(1, 8)):
        alphabet = rng.choice(ALPHABETS)
        parts.append("".join(rng.choice(alphabet) for _ in range(rng.randint(1, 9))))
    return "".join(parts)


def texts_to_encode(rng):
    texts = ["", " ", "  ", "a", "\n", "<|im_end|>", "<|im_start|>user\nHi <|im_end|>\n", "x<|end|>",
             "<|begin|><|begin|>", " <|im_end|> x", "<|im_end", "<keep> it<keep>", "two  <gap>  sides",
             "wordy word word!", "_word_ word-word", "1234567", "12 345678901 1234a", "٣٤٥٦٧",
             "2333\u0301 x", "1234_5", "12345\u203f"]
    texts += SENTENCES + [s.strip() for s in SENTENCES]
    texts += ["a" * 300, " " * 70 + "x", "ab" * 200, "é" * 50, "9" * 100, "\n" * 40, "😀" * 30]
    for _ in range(120):
        texts.append(random_text(rng))
    for _ in range(30):
        texts.append("".join(chr(rng.choice([rng.randint(1, 0xd7ff), rng.randint(0xe000, 0x1ffff)]))
                             for _ in range(rng.randint(1, 20))))
    return texts


def mixes_bytes(tokens):
    """Whether a run of byte tokens is partly well-formed: the package then gives one U+FFFD for
    each byte of the run, the good ones included; a stream of text cannot know that in time."""
    run = b""
    for token in tokens + ["end"]:
        if len(token) == 6 and token.startswith("<0x"):
            run += bytes([int(token[3:5], 16)])
            continue
        if run:
            try:
                run.decode()
            except UnicodeDecodeError:
                if len(run.decode(errors="ignore")) > 0:
                    return True
        run = b""
    return False


def record(tokenizer, rng):
    encoded, broken, decoded = [], [], []
    for text in texts_to_encode(rng):
        tokenizer.encode_special_tokens = True
        plain = tokenizer.encode(text, add_special_tokens=False).ids
        tokenizer.encode_special_tokens = False
        ids = tokenizer.encode(text, add_special_tokens=True).ids
        encoded.append({"text": text, "ids": ids, "plain": plain,
                        "decoded": tokenizer.decode(ids, skip_special_tokens=True)})
    for _ in range(40):
        data = bytes(rng.choice([rng.randint(0, 255), rng.randint(97, 122)])
                     for _ in range(rng.randint(1, 30)))
        ids = tokenizer.encode(data.decode("utf-8", "replace"), add_special_tokens=False).ids
        broken.append({"hex": data.hex(), "ids": ids})
    known = sorted(tokenizer.get_vocab().values())
    while len(decoded) < 60:
        ids = [rng.choice(known) for _ in range(rng.randint(1, 12))]
        if mixes_bytes([tokenizer.id_to_token(i) for i in ids]):
            continue
        decoded.append({"ids": ids, "all": tokenizer.decode(ids, skip_special_tokens=False),
                        "skipped": tokenizer.decode(ids, skip_special_tokens=True)})
    return {"script": "tests/reference/make_tokenizers.py", "tokenizers": tokenizers.__version__,
            "seed": SEED, "encode": encoded, "broken": broken, "decode": decoded}


def template(tokenizer, text):
    names = [n for n in text.split() if not n.startswith("$")]
    return processors.TemplateProcessing(
        single=text, special_tokens=[(n, tokenizer.token_to_id(n)) for n in names])


def train(tokenizer, texts, size, alphabet):
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=["<unk>"] + SPECIALS,
                                  initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_tokens([AddedToken("<keep>", normalized=False), AddedToken("<gap>", lstrip=True, rstrip=True),
                          AddedToken("word", single_word=True, normalized=False)])
    return tokenizer


def byte_level(steps, texts, normalizer=None, prefix_space=False, use_regex=False, after=()):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizer
    last = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space, use_regex=use_regex)
    steps = list(steps) + [last] + list(after)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps) if len(steps) > 1 else last
    tokenizer.decoder = decoders.ByteLevel()
    return train(tokenizer, texts, 600, pre_tokenizers.ByteLevel.alphabet())


def with_byte_tokens(tokenizer):
    """The tokenizer with tokens <0x00> to <0xFF>, and the settings that use them."""
    data = json.loads(tokenizer.to_str())
    model = data["model"]
    model.update(byte_fallback=True, fuse_unk=True, unk_token="<unk>")
    first = 1 + max(list(model["vocab"].values()) + [t["id"] for t in data["added_tokens"]])
    for byte in range(256):
        model["vocab"][f"<0x{byte:02X}>"] = first + byte
    return Tokenizer.from_str(json.dumps(data))


def sentencepiece_like(texts, normalizer, pre_tokenizer, decoder):
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizer
    # Pieces at spaces while training, or whole sentences would become tokens.
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    train(tokenizer, texts, 500, [])
    tokenizer = with_byte_tokens(tokenizer)
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoder
    return tokenizer


def isolated(pattern):
    return pre_tokenizers.Split(Regex(pattern), "isolated")


def strip_decoder():
    return decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                              decoders.Strip(" ", 1, 0)])


def build(texts):
    made = {}
    made["bytes_llama3"] = byte_level([isolated(LLAMA3)], texts)
    made["bytes_llama3"].post_processor = processors.Sequence(
        [processors.ByteLevel(trim_offsets=True), template(made["bytes_llama3"], "<|begin|> $A")])
    made["bytes_gpt2_nfc"] = byte_level([], texts, normalizers.NFC(), prefix_space=True, use_regex=True)
    made["bytes_digits"] = byte_level([pre_tokenizers.Digits(individual_digits=True)], texts, use_regex=True)
    made["bytes_o200k"] = byte_level([isolated(r"\d{1,3}(?=(?:\d{3})*\b)"), isolated(O200K)], texts)
    made["bytes_deepseek3"] = byte_level(
        [isolated(r"\p{N}{1,3}"), isolated("[一-龥\u3040-ゟ゠-ヿ]+"), isolated(DEEPSEEK3)], texts)
    made["bytes_falcon"] = byte_level(
        [pre_tokenizers.Punctuation("contiguous")], texts, use_regex=True,
        after=[pre_tokenizers.Digits(individual_digits=False), isolated("[0-9][0-9][0-9]")])
    made["spm_legacy"] = sentencepiece_like(
        texts, normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]), None,
        strip_decoder())
    made["spm_legacy"].post_processor = template(made["spm_legacy"], "<|begin|> $A <|end|>")
    made["spm_metaspace"] = sentencepiece_like(
        texts, None, pre_tokenizers.Metaspace(prepend_scheme="first", split=False), strip_decoder())
    made["spm_gemma"] = sentencepiece_like(
        texts, normalizers.Replace(" ", "▁"), pre_tokenizers.Split(" ", "merged_with_previous"),
        decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]))
    return made


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "tests/data/tokenizers")
    folder.mkdir(parents=True, exist_ok=True)
    texts = corpus(random.Random(SEED))
    for name, tokenizer in build(texts).items():
        text = tokenizer.to_str()
        (folder / f"{name}.json").write_text(text, encoding="utf-8")
        # What is recorded is what the file gives, not what the object in memory does.
        loaded = Tokenizer.from_str(text)
        expected = record(loaded, random.Random(SEED))
        (folder / f"{name}.expected.json").write_text(
            json.dumps(expected, ensure_ascii=True, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
