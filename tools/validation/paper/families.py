"""Families that the paper says it validates, and our test of each.

The paper counts 42 algorithm family tests and lists none. The families here are taken from its text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from simgpu.tools.validation.paper.entry import PaperNumber, QuotedFigure
from simgpu.tools.validation.paper.givens import Givens


@dataclass(frozen=True)
class Family:
    """A claim or algorithm of the paper, and our tests of it."""

    operator: str
    what: str
    tests: tuple[str, ...] = ()  # file::function, from the project's root
    without: str = ""  # why there is no test


_GPU = "a time on a GPU: none has run our kernels"
_UNBUILT = "named as a strategy; the paper builds none, nor do we"

FAMILIES = (
    Family("Model", "tree of Figure 1", ("tests/operators/test_gemm_tree.py::test_figure_1_line_for_line",)),
    Family("Model", "one tree for all operators and visitors", ("tests/operators/test_tree.py::test_one_node_model",)),
    Family(
        "Model", "numpy and kernels follow a changed tree alike",
        ("tests/asm/test_shared_tree.py::test_steps", "tests/asm/test_shared_tree.py::test_extents"),
    ),
    Family(
        "Model", "FeasibilityVisitor, targets swapped",
        ("tests/operators/test_gemm_tiles.py::test_feasibility_visitor_moves_between_targets",),
    ),
    Family(
        "Model", "tiles shrink below one a CU",
        ("tests/operators/test_gemm_tiles.py::test_published_tiles_shrink_only_while_cus_are_idle",
         "tests/tools/test_paper.py::test_published_q_tiles_shrink_only_while_cus_are_idle"),
    ),
    Family(
        "MFMA", "fragment ownership",
        ("tests/hardware/mfma/test_layout.py::test_every_element_is_where_the_calculator_has_it",),
    ),
    Family("MFMA", "structured test of the layout", ("tests/tools/test_layout.py::test_the_probe_shows_the_papers_pitfall",)),
    Family("MFMA", "chained products", ("tests/hardware/mfma/test_chain.py::test_chained_products_are_exact",)),
    Family("GEMM", "ComputeVisitor at every level", ("tests/operators/test_compute_gemm.py::test_every_level_is_the_product",)),
    Family("GEMM", "kernel against float64, clipped edges", ("tests/asm/test_gemm.py::test_any_shape_validates",)),
    Family("GEMM", "the published tile", ("tests/asm/test_gemm.py::test_the_published_tiles_validate",)),
    Family("GEMM", "12.3 TFLOPS", without=_GPU),
    Family(
        "Convolution", "direct, at every level",
        ("tests/operators/test_compute_conv2d.py::test_every_level_is_the_convolution",),
    ),
    Family("Convolution", "direct, tiled kernel", ("tests/asm/test_conv2d.py::test_any_convolution_validates",)),
    Family("Convolution", "naive baseline", ("tests/asm/test_conv2d.py::test_the_naive_kernel_validates",)),
    Family("Convolution", "halo", ("tests/asm/test_conv2d.py::test_slots_are_a_layout",)),
    Family(
        "Convolution", "filter pre-packing",
        ("tests/operators/test_compute_conv2d.py::test_packed_filter",
         "tests/asm/test_conv2d.py::test_the_packing_kernel_is_the_function"),
    ),
    Family(
        "Convolution", "spatial-to-channel replication",
        ("tests/operators/test_compute_conv2d.py::test_space_to_channel_is_the_same_convolution",
         "tests/asm/test_conv2d.py::test_few_channels_become_more"),
    ),
    Family("Convolution", "lowering to GEMM (im2col)", without=_UNBUILT),
    Family("Convolution", "Winograd", without=_UNBUILT),
    Family("Convolution", "frequency domain", without=_UNBUILT),
    Family("Convolution", "1.7x over naive", without=_GPU),
    Family("Softmax", "512 x 512 at machine precision", ("tests/asm/test_softmax.py::test_the_papers_softmax",)),
    Family("Softmax", "online, any row", ("tests/asm/test_softmax.py::test_any_shape_validates",)),
    Family(
        "Softmax", "the merge operator is associative",
        ("tests/operators/test_compute_softmax.py::test_merge_is_associative_and_commutative_with_a_neutral_element",),
    ),
    Family("Softmax", "split-N by a binary reduction", ("tests/asm/test_softmax.py::test_every_way_to_hold_a_row",)),
    Family(
        "Softmax", "padding that counts nothing",
        ("tests/operators/test_compute_softmax.py::test_e30_fully_padded_tiles_count_nothing",),
    ),
    Family("Attention", "Table 2", ("tests/tools/test_paper.py::test_table_2",)),
    Family("Attention", "Algorithm 1 at every level", ("tests/operators/test_compute_attention.py::test_every_level_fused",)),
    Family(
        "Attention", "MFMA+FMA and MFMA+MFMA kernels",
        ("tests/asm/test_attention_paper.py::test_any_shape_validates",),
    ),
    Family(
        "Attention", "both give identical results",
        ("tests/asm/test_attention_paper.py::test_both_kernels_agree_bit_for_bit",),
    ),
    Family("Attention", "E^T in LDS", ("tests/asm/test_attention_paper.py::test_the_printed_index_is_wrong",)),
    Family("Attention", "unfused baseline", ("tests/asm/test_unfused.py::test_any_shape_validates",)),
    Family(
        "Attention", "HBM traffic, fused and unfused",
        ("tests/tools/test_time.py::test_attention_streams_keys_once_a_round",
         "tests/tools/test_time.py::test_unfused_attention_moves_s_four_times"),
    ),
    Family("Attention", "softmax and second product fused in registers (its future work)",
           ("tests/asm/test_attention.py::test_any_shape_validates",)),
    Family("Attention", "times of Table 3", without=_GPU),
)  # fmt: skip


def families(g: Givens) -> Iterator[PaperNumber]:
    """Yields the number of families; `FAMILIES` lists them. The givens have no effect here."""
    tested = sum(bool(family.tests) for family in FAMILIES)
    yield PaperNumber(
        "What is validated", "algorithm family tests", "42, all pass", QuotedFigure("42, none listed"),
        f"{tested} of the {len(FAMILIES)} that the text names have a test", "", "the table below",
    )  # fmt: skip


def family_table() -> str:
    """Returns the families in Markdown."""
    lines = ["## What the paper names, and the test here", "", "| | | test |", "|---|---|---|"]
    for family in FAMILIES:
        tests = "<br>".join(f"`{test}`" for test in family.tests) or f"none: {family.without}"
        lines.append(f"| {family.operator} | {family.what} | {tests} |")
    return "\n".join(lines) + "\n"
