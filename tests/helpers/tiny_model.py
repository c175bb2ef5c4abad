"""A model of a few hundred kilobytes that llama.cpp loads in milliseconds, and whose every letter is known beforehand.

Its tokens are bytes and the marks of a chat. It knows nothing but which letter likes to follow which: its embedding is
the identity, its layers add nothing, and its output is the table of what follows.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import gguf
import numpy as np

WIDTH = 320
HEAD = 32  # one small head: what attention costs grows with the square of a prompt, and every byte is a token
MARKS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def write_model(
    path: Path, follows: Mapping[str, str], *, context: int = 16384, template: str = TEMPLATE, layers: int = 2
) -> Path:
    """Write a model in which each letter is followed by one of those it likes, the first most.

    The end of a chat's turn is written as ``"\\0"``.
    """
    letters = _letters()
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("tiny")
    writer.add_context_length(context)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(32)
    writer.add_head_count(1)
    writer.add_head_count_kv(1)
    writer.add_key_length(HEAD)
    writer.add_value_length(HEAD)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(HEAD)
    writer.add_vocab_size(len(letters))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(letters)
    writer.add_token_types([gguf.TokenType.NORMAL] * 256 + [gguf.TokenType.CONTROL] * len(MARKS))
    writer.add_token_merges([f"{letters[0]} {letters[1]}"])
    writer.add_bos_token_id(256)
    writer.add_eos_token_id(258)
    writer.add_add_bos_token(False)
    writer.add_chat_template(template)
    for name, tensor in _tensors(len(letters), follows, layers):
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _letters() -> list[str]:
    """Return the bytes as GPT-2 writes them: those that cannot be printed are moved to where they can."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    moved = iter(range(256, 512))
    return [chr(byte) if byte in shown else chr(next(moved)) for byte in range(256)] + MARKS


def _tensors(size, follows, layers):
    identity = np.eye(size, WIDTH, dtype=np.float32)
    liked = np.zeros((size, WIDTH), dtype=np.float32)
    for letter, nexts in follows.items():
        for rank, follower in enumerate(nexts):
            liked[258 if follower == "\0" else ord(follower), ord(letter)] = 10.0 - rank
    yield "token_embd.weight", identity
    yield "output.weight", liked
    yield "output_norm.weight", np.ones(WIDTH, dtype=np.float32)
    for layer in range(layers):
        yield f"blk.{layer}.attn_norm.weight", np.ones(WIDTH, dtype=np.float32)
        yield f"blk.{layer}.ffn_norm.weight", np.ones(WIDTH, dtype=np.float32)
        shapes = {
            "attn_q": (HEAD, WIDTH),
            "attn_k": (HEAD, WIDTH),
            "attn_v": (HEAD, WIDTH),
            "attn_output": (WIDTH, HEAD),
            "ffn_gate": (32, WIDTH),
            "ffn_up": (32, WIDTH),
            "ffn_down": (WIDTH, 32),
        }
        for name, shape in shapes.items():
            yield f"blk.{layer}.{name}.weight", np.zeros(shape, dtype=np.float32)
