"""C++ names: how they are shown, and which kernels a user's spelling means."""

from __future__ import annotations

import pytest

from simgpu.hardware.code_object.demangled import SHOWN, kernels_by_name, readable, spellings
from simgpu.hardware.code_object.frames import SourceFrame, library_words, users_line
from simgpu.hardware.code_object.lines import SourceLine

SCALE, OTHER = "_Z5scaleIfEvPT_PKS0_i", "_Z5scaleIdEvPT_PKS0_i"
NAMED = {
    SCALE: ["scale", "scale<float>", "scale<float>(float*, float const*, int)", SCALE],
    "_ZN2ns3sum7partialEPf": ["partial", "ns::sum::partial", "ns::sum::partial(float*)"],
    "_ZN12_GLOBAL__N_16hiddenEPf": ["hidden", "(anonymous namespace)::hidden"],
    "plain_c": ["plain_c"],
}


@pytest.mark.parametrize(("name", "wanted"), [(name, each) for name, spelled in NAMED.items() for each in spelled])
def test_a_kernel_is_found_by_each_of_its_spellings(name: str, wanted: str) -> None:
    assert kernels_by_name(NAMED, wanted) == [name]


def test_the_most_exact_spelling_decides() -> None:
    assert kernels_by_name([SCALE, OTHER], "scale<double>") == [OTHER]
    assert kernels_by_name([SCALE, OTHER], "scale") == [SCALE, OTHER]
    assert kernels_by_name([SCALE, "scale"], "scale") == ["scale"], "a kernel of C is meant by its name"
    assert kernels_by_name(["_ZN1a1kEv", "_Z1kv"], "k") == ["_Z1kv"], "one without a namespace before one in any"
    assert kernels_by_name([SCALE], "scal") == []


def test_long_names_are_abbreviated() -> None:
    arguments = "If" * 100
    long = f"_Z4sortISt5tupleIJ{arguments}EEEvPT_".replace("If", "f")
    assert readable(long) == "void sort<…>(std::tuple<…>*)" and len(readable(long)) < SHOWN
    assert all(spelling for spelling in spellings(long))


def test_frames_are_told_by_the_users_file() -> None:
    header = SourceFrame(SourceLine("/site-packages/simgpu/tools/shared/device", "hip.h", 61), "__syncthreads")
    helper, kernel = SourceFrame(SourceLine(".", "k.hip", 3), "helper"), SourceFrame(SourceLine(".", "k.hip", 9), "")
    assert users_line([header, helper, kernel]) == helper.line
    assert library_words("k.hip:3", [str(header), str(helper), str(kernel)]) == "in __syncthreads, hip.h:61"
    assert users_line([header]) == header.line and users_line([]) is None, "a file of libraries only has no other line"
    assert library_words("k.hip:9", [str(kernel)]) == library_words("", []) == ""
