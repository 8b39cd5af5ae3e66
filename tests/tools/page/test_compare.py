"""`--against`: two runs of the same kernels side by side, and pages that cannot be compared; pages of every kind of kernel."""

from __future__ import annotations

import base64
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simgpu import Device
from simgpu.hardware.code_object.code_object import CodeObject
from simgpu.tools.cli import main
from simgpu.tools.page import page
from simgpu.tools.page.code import listing_rows
from simgpu.tools.page.page import FORMAT, MOST_BYTES, Page, read_document
from simgpu.tools.page.side_by_side import pairs
from simgpu.tools.shared.errors import UsageError
from tests.support.browser import Opened, needs_browser
from tests.support.exhaustive import examples, one_in
from tests.support.kernels import loaded_kernel

RUN = "run softmax --rows 20 -n 300 --target mi300x"


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("page") / "first.html"
    assert main([*RUN.split(), "--html", str(file)]) == 0
    return file


@needs_browser
def test_runs_of_other_sizes_differ_in_counts(first: Path, tmp_path: Path, opened: Opened) -> None:
    """A kernel takes the number of rows as an argument, so both runs have the same code."""
    second = tmp_path / "second.html"
    assert main([*RUN.replace("20", "60").split(), "--html", str(second), "--against", str(first)]) == 0
    mine, other = (read_document(str(file))["kernels"][0] for file in (second, first))
    opened.open(second, "view=compare")
    text = opened.page.inner_text("main")
    assert f"{mine['instructions']:,}" in text and f"{other['instructions']:,}" in text
    assert f"+{mine['instructions'] - other['instructions']:,}" in text
    opened.page.click("main tbody button.link >> nth=0")
    assert "view=source" in opened.fragment and "row=" in opened.fragment
    assert opened.errors == []


LINES = """
s_load_dwordx2 s[4:5], s[0:1], 0x0
v_lshlrev_b32 v1, 2, v0
{}
s_waitcnt lgkmcnt(0)
global_store_dword v1, v{}, s[4:5]
"""


@needs_browser
def test_two_compilations_are_side_by_side(tmp_path: Path, opened: Opened) -> None:
    """Compares with a second one that has another register, and an instruction more."""
    for name, more, register in (("first", "v_mov_b32 v2, v0", 2), ("second", "v_mov_b32 v3, v0\nv_add_u32 v3, 1, v3", 3)):
        code = loaded_kernel(Device("mi300x"), LINES.format(more, register), "buffer").module.code.data
        (tmp_path / f"{name}.co").write_bytes(code)
        against = ["--against", str(tmp_path / "first.html")] if name == "second" else []
        launch = [str(tmp_path / f"{name}.co"), "--grid", "1", "--arg", "zeros:f32:64", "--html", str(tmp_path / f"{name}.html")]
        assert main(["exec", *launch, *against]) == 0
    (other,) = read_document(str(tmp_path / "second.html"))["against"]["kernels"]
    assert [pair for pair in other["pairs"] if -1 in pair] == [[3, -1]] and len(other["pairs"]) == 1 + len(other["columns"]["text"])
    text = opened.open(tmp_path / "second.html", "view=compare").page.inner_text("main")
    assert "1 are only here, 0 only there" in text and "2 have other operands" in text
    assert len(opened.page.query_selector_all(".beside .changed mark")) == 4  # v3 for v2, in both columns of two instructions
    opened.page.click("text=show what differs")
    assert len(opened.page.query_selector_all(".beside .row:not(.head)")) == 3 and opened.errors == []


LISTING = st.lists(st.sampled_from(["a 1", "a 2", "b 1", "c"]), max_size=30)


@given(LISTING, LISTING)
@settings(max_examples=examples(100))
def test_pairs_have_every_row_once_and_in_order(mine: list[str], other: list[str]) -> None:
    made = pairs(mine, other)
    assert [a for a, _ in made if a >= 0] == list(range(len(mine))) and [b for _, b in made if b >= 0] == list(range(len(other)))
    assert all(mine[a][0] == other[b][0] for a, b in made if min(a, b) >= 0)


@needs_browser
def test_the_same_run_does_not_differ(first: Path, tmp_path: Path, opened: Opened) -> None:
    assert main([*RUN.split(), "--html", str(tmp_path / "same.html"), "--against", str(first)]) == 0
    assert "Every instruction counts the same" in opened.open(tmp_path / "same.html", "view=compare").page.inner_text("main")


@pytest.mark.slow
def test_what_cannot_be_compared_is_said_in_a_line(first: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = tmp_path / "old.html"
    old.write_text(Page("old", {"kernels": []}).html())
    made = read_document(str(old))
    assert made["format"] == FORMAT
    other = tmp_path / "other.html"
    assert main([*RUN.replace("-n 300", "-n 5000").split(), "--html", str(other)]) == 0
    (tmp_path / "text.html").write_text("nothing")
    capsys.readouterr()
    text, none = tmp_path / "text.html", tmp_path / "none"
    for against, said in ((old, "this is one of"), (other, "softmax"), (text, "no page of simgpu"), (none, "none")):
        assert main([*RUN.split(), "--html", str(tmp_path / "new.html"), "--against", str(against)]) == 2
        heard = capsys.readouterr().err
        assert said in heard and heard.count("\n") == 1 and not (tmp_path / "new.html").exists()
    assert main([*RUN.split(), "--against", str(first)]) == 2
    assert "--against goes with --html" in capsys.readouterr().err


KERNELS = {
    "conv2d": "run conv2d --ic 16 --ih 12 --iw 13 --oc 20 --kh 3 --kw 3 --target mi100",
    "softmax": "run softmax --rows 30 -n 3000 --dtype f16 --target mi210",
    "attention": "run attention -L 70 -d 64 --causal --dtype bf16 --target mi355x",
    "unfused": "run unfused -L 40 -d 32 --dtype f16 --target mi300x",
}


@needs_browser
@pytest.mark.parametrize("name", one_in(2, list(KERNELS)))
def test_a_page_of_each_operator(name: str, tmp_path: Path, opened: Opened) -> None:
    file = tmp_path / "page.html"
    assert main([*KERNELS[name].split(), "--html", str(file)]) == 0
    assert file.stat().st_size < MOST_BYTES / 4
    opened.open(file)
    for number in range(len(read_document(str(file))["kernels"])):
        opened.run("([kernel]) => simgpu.select({ kernel, view: 'source' })", number)
        assert opened.page.query_selector_all(".row[role=option]")
    for tab in range(1, 1 + len(opened.page.query_selector_all("[role=tab]"))):
        opened.page.keyboard.press(str(tab))
        assert len(opened.page.inner_text("main")) > 50
    assert opened.errors == []


triton = pytest.importorskip("triton", reason="Triton is not installed: pip install 'triton>=3.7'")
tl = pytest.importorskip("triton.language")


@triton.jit
def doubled(x, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + at, mask=at < n)
    tl.store(out + at, 2 * values, mask=at < n)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Compiles it here: Triton's cache may hold another checkout's code, with that checkout's lines."""
    from triton.backends.compiler import GPUTarget

    types = {"x": "*fp32", "out": "*fp32", "n": "i32", "BLOCK": "constexpr"}
    source = triton.compiler.ASTSource(fn=doubled, signature=types, constexprs={"BLOCK": 256})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("triton")))
        code: bytes = triton.compile(source, target=GPUTarget("hip", "gfx942", 64)).asm["hsaco"]
    return code


def test_a_triton_kernels_lines_are_this_files(compiled: bytes) -> None:
    device = Device("mi300x")
    kernel = device.load(compiled)["doubled"]
    x, out = device.upload(np.arange(1000, dtype=np.float32)), device.upload(np.zeros(1000, np.float32))
    run = kernel.launch(grid=4, block=256, args=[x, out, 1000, *[0] * (len(kernel.arguments) - 3)])
    code = run.html().document["kernels"][0]["code"]
    (name,) = code["files"]
    columns = code["columns"]
    by_mnemonic = {}
    for text, line, times in zip(columns["text"], columns["line"], columns["executions"], strict=True):
        if line >= 0 and times:
            place, _, at = code["lines"][line].rpartition(":")
            by_mnemonic[text.split()[0].split("_")[1]] = code["files"][name][int(at) - 1].strip() if place == name else ""
    assert by_mnemonic["load"].startswith("values = tl.load")
    assert by_mnemonic["store"].startswith("tl.store")
    assert code["elsewhere"] == 0 and sum(columns["executions"]) == run.instructions


def test_a_prologue_that_loads_arguments_is_none_of_the_kernel(compiled: bytes) -> None:
    """gfx942 preloads arguments: execution begins after the first 256 bytes, and offsets count from there."""
    code = CodeObject.parse(compiled)
    info = code.kernels["doubled"]
    assert info.start - info.entry == 256
    offset, inst, _ = listing_rows(code, info)[0]
    assert offset == 0 and inst is not None


def test_a_page_that_expands_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Data of a page are decompressed only up to a limit."""
    monkeypatch.setattr(page, "LARGEST", 1 << 20)
    data = base64.b64encode(zlib.compress(b"[" + b" " * (4 << 20) + b"]")).decode()
    file = tmp_path / "bomb.html"
    file.write_text(f'<script id="data" type="application/octet-stream">{data}</script>')
    with pytest.raises(UsageError, match="more than 1 MiB"):
        read_document(str(file))
    file.write_bytes(bytes(2 << 20))
    with pytest.raises(UsageError, match="more than 1 MiB"):
        read_document(str(file))
