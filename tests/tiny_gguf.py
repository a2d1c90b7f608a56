"""A small llama with random weights in a GGUF file, with a tokenizer of bytes and a chat template."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
from tiny_model import TEMPLATE

SPECIAL = ["<pad>", "<end>", "<|user|>", "<|assistant|>"]


def make_tiny_gguf(
    path: Path,
    *,
    context: int = 512,
    template: str | None = TEMPLATE,
    says: Sequence[str] = (),
    architecture: str = "llama",
    parts: int = 1,
) -> Path:
    """Save an untrained model with random weights, and return its path; its tokens are bytes and four special ones.

    Each text of `says` is a token; the likeliest answer to everything is these texts, one after the other.
    """
    import gguf

    hidden, layers = 64, 2
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))  # GPT-2's alphabet: each byte that cannot be printed has one of these letters
    alphabet = [chr(byte if byte in printable else next(others)) for byte in range(256)]
    words = [text if text in SPECIAL else "".join(alphabet[byte] for byte in text.encode()) for text in says]
    tokens = list(dict.fromkeys([*alphabet, *SPECIAL, *words]))
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(context)
    writer.add_embedding_length(hidden)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(2 * hidden)
    writer.add_head_count(4)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.CONTROL if token in SPECIAL else gguf.TokenType.NORMAL for token in tokens])
    writer.add_token_merges(["l e"])
    writer.add_eos_token_id(tokens.index("<end>"))
    if template is not None:
        writer.add_chat_template(template)
    if parts > 1:
        writer.add_uint16("split.count", parts)
    shapes = {"token_embd": (len(tokens), hidden), "output": (len(tokens), hidden), "output_norm": (hidden,)}
    for block in (f"blk.{layer}." for layer in range(layers)):
        shapes |= {block + name: (hidden,) for name in ("attn_norm", "ffn_norm")}
        shapes |= {block + name: (hidden, hidden) for name in ("attn_q", "attn_k", "attn_v", "attn_output")}
        shapes |= {block + name: (2 * hidden, hidden) for name in ("ffn_gate", "ffn_up")}
        shapes |= {block + "ffn_down": (hidden, 2 * hidden)}
    rng = np.random.default_rng(0)
    weights = {name: rng.normal(len(shape) == 1, 0.1, shape).astype(np.float32) for name, shape in shapes.items()}
    if says:  # the layers add nothing, and a token's embedding is what calls for the next one
        for name in weights:
            weights[name] *= not name.endswith(("attn_output", "ffn_down", "output"))
        for token, following in pairwise(map(tokens.index, ("<|assistant|>", *words))):
            weights["output"][following] += weights["token_embd"][token]
    for name, values in weights.items():
        writer.add_tensor(f"{name}.weight", values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
