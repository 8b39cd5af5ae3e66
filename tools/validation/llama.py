"""Lets llama.cpp generate tokens on the simulated GPU and on the host, from a tiny model of random weights, and compares them.

    python -m simgpu.tools.validation.llama FOLDER [--target mi210] [--types F16,Q8_0] [--tokens 24] [--seed 7]

The folder holds Debian's llama.cpp-tools, libllama0, libggml0-backend-hip and what they need (docs/how-to/rocm-libraries.md).
The model is written with the package `gguf` (pip install gguf), and quantised by llama.cpp itself.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from simgpu.tools.shared.console import show, table
from simgpu.tools.shared.errors import UsageError
from simgpu.tools.validation.rocm import link_backends, output

PROGRAM = "usr/bin/llama-simple"
WIDTH, HEADS, KV_HEADS, LAYERS, HIDDEN = 256, 4, 2, 2, 512
PIECES = 253  # tokens of two letters, with three special ones and one for each byte
SPECIAL = (b"<unk>", b"<s>", b"</s>")
UNKNOWN, NORMAL, CONTROL, BYTE = 2, 1, 3, 6  # llama.cpp's types of tokens
PROMPT = "the quick brown"
EXACT = ("F16", "Q8_0")  # host and GPU round the activations of these alike


def write_model(path: Path, seed: int) -> None:
    """Writes a model of llama's architecture with random f16 weights, 2.9 MB."""
    try:
        import gguf
    except ImportError:
        raise UsageError("the model is written with the package gguf: pip install gguf") from None
    chance = np.random.default_rng(seed)
    head = WIDTH // HEADS
    letters = [chr(ord("a") + i) for i in range(26)]
    pieces = [f"\u2581{letters[i % 26]}{letters[i // 26]}".encode() for i in range(PIECES)]
    tokens = [*SPECIAL, *(f"<0x{i:02X}>".encode() for i in range(256)), *pieces]
    model = gguf.GGUFWriter(str(path), "llama")
    model.add_context_length(256)
    model.add_embedding_length(WIDTH)
    model.add_block_count(LAYERS)
    model.add_feed_forward_length(HIDDEN)
    model.add_head_count(HEADS)
    model.add_head_count_kv(KV_HEADS)
    model.add_layer_norm_rms_eps(1e-5)
    model.add_rope_dimension_count(head)
    model.add_vocab_size(len(tokens))
    model.add_file_type(1)
    model.add_tokenizer_model("llama")
    model.add_token_list(tokens)
    model.add_token_scores([0.0] * (len(tokens) - PIECES) + [-float(i) for i in range(PIECES)])
    model.add_token_types([UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256, *[NORMAL] * PIECES])
    model.add_bos_token_id(1)
    model.add_eos_token_id(2)
    model.add_unk_token_id(0)
    keys = KV_HEADS * head
    layer = {"attn_q": (WIDTH, WIDTH), "attn_k": (keys, WIDTH), "attn_v": (keys, WIDTH), "attn_output": (WIDTH, WIDTH),
             "ffn_gate": (HIDDEN, WIDTH), "ffn_up": (HIDDEN, WIDTH), "ffn_down": (WIDTH, HIDDEN)}  # fmt: skip
    shapes = {"token_embd": (len(tokens), WIDTH), "output": (len(tokens), WIDTH)}
    shapes |= {f"blk.{i}.{name}": shape for i in range(LAYERS) for name, shape in layer.items()}
    for name, shape in shapes.items():
        scale = 1.0 if name == "token_embd" else 1.5 / np.sqrt(shape[1])
        model.add_tensor(f"{name}.weight", (chance.standard_normal(shape) * scale).astype(np.float16))
    for name in ("output_norm", *(f"blk.{i}.{part}_norm" for i in range(LAYERS) for part in ("attn", "ffn"))):
        model.add_tensor(f"{name}.weight", np.ones(WIDTH, np.float32))
    model.write_header_to_file()
    model.write_kv_data_to_file()
    model.write_tensors_to_file()
    model.close()


def generate(root: Path, model: Path, on_gpu: bool, target: str, tokens: int) -> str:
    """Returns the prompt and the text that llama.cpp generates after it, always its likeliest token. Raises UsageError."""
    words = [str(root / PROGRAM), "-m", str(model), "-n", str(tokens), "-ngl", "99" if on_gpu else "0", PROMPT]
    log = model.parent / "errors"
    with log.open("wb") as errors:
        text, why = output(words, root, target, 600, model.parent, errors)
    said = log.read_text(errors="replace")
    if why or not text.strip():
        raise UsageError(f"llama-simple {why or 'generated nothing'}: {said.splitlines()[-1:]}")
    if on_gpu and f"offloaded {LAYERS + 1}/{LAYERS + 1} layers to GPU" not in said:
        raise UsageError("llama.cpp put no layers on the GPU: libggml0-backend-hip and libhipblas2 belong into the folder")
    return text.strip()


def main(words: Sequence[str] | None = None) -> int:
    """Prints a row for each type of weights; status 1 if host and GPU differ where both round alike."""
    parser = argparse.ArgumentParser(prog="python -m simgpu.tools.validation.llama", description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="folder with the unpacked packages")
    parser.add_argument("--target", default="mi210", help="board (mi210; Debian's ggml has code up to gfx90a)")
    parser.add_argument("--types", default=",".join(EXACT), help="of the weights, as llama-quantize knows them (F16,Q8_0)")
    parser.add_argument("--tokens", type=int, default=24, help="to generate (24)")
    parser.add_argument("--seed", type=int, default=7, help="of the random weights (7)")
    options = parser.parse_args(words)
    root = options.folder.resolve()
    if not (root / PROGRAM).exists():
        raise UsageError(f"{options.folder} has no {PROGRAM}: unpack llama.cpp-tools into it")
    rows = []
    with tempfile.TemporaryDirectory(prefix="simgpu-llama-") as scratch:
        link_backends(root, Path(scratch))
        whole = Path(scratch, "F16.gguf")
        write_model(whole, options.seed)
        for kind in options.types.split(","):
            model = Path(scratch, f"{kind}.gguf")
            if model != whole:
                quantise = [str(root / "usr/bin/llama-quantize"), str(whole), str(model), kind]
                output(quantise, root, options.target, 600, Path(scratch))
            if not model.exists():
                raise UsageError(f"--types {kind}: llama-quantize does not know it")
            host, gpu = (generate(root, model, on_gpu, options.target, options.tokens) for on_gpu in (False, True))
            alike = (a == b for a, b in zip(host, gpu, strict=False))
            same = sum(1 for _ in itertools.takewhile(bool, alike))
            rows.append((kind, "yes" if host == gpu else "no", f"{same} of {len(host)}"))
    show(table(f"llama.cpp on {options.target}: text as on the host", ("weights", "same", "letters alike"), rows, left=2))
    return int(any(kind in EXACT and same == "no" for kind, same, _ in rows))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UsageError as error:
        sys.exit(f"simgpu: {error}")
