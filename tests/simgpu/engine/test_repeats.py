"""Launches of one kernel share what their counts and their geometry determine, and nothing else."""

from __future__ import annotations

import weakref
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simgpu import Device, asm, operators
from simgpu.engine.accounts import CLASSES, FIDELITIES, MOVED, Accounts, bytes_moved, instruction_class, matrix_flops
from simgpu.engine.launch import Launch
from simgpu.engine.series import launches
from simgpu.engine.workers.desk import Desk
from simgpu.hardware.code_object.arguments import Geometry, fill
from simgpu.hardware.code_object.kernels import Argument
from simgpu.hardware.errors import InstructionLimit, LaunchError, MemoryFault, TimeLimit
from simgpu.hardware.isa.fidelity import fidelity_of
from tests.support.engine_kernel import Kernel
from tests.support.exhaustive import examples

# The input says how often the loop runs, and how many lanes its load has.
LOOP = """
s_load_dwordx2 s[12:13], s[4:5], 0x0
v_mov_b32 v5, 0
s_waitcnt lgkmcnt(0)
v_cmpx_gt_u32 vcc, s13, v0
loop:
  global_load_dword v6, v60, s[4:5]
  s_waitcnt vmcnt(0)
  v_add_f32 v5, v5, v6
  s_sub_u32 s12, s12, 1
  s_cmp_lg_u32 s12, 0
  s_cbranch_scc1 loop
"""
TARGET = "gfx942"


@settings(max_examples=examples(20))
@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 64)), min_size=2, max_size=6))
def test_a_run_does_not_depend_on_the_launches_before(launches):
    """Equal counts one after the other, and different ones in between: each run is as if it were the first."""
    kernel = Kernel(TARGET, LOOP)
    for times, lanes in [*launches, launches[-1]]:
        run = kernel.run(np.array([times, lanes] + [0] * 62, np.uint32)).run
        assert run.profile[0] == 1 and sorted(run.profile.values())[-6:] == [times] * 6
        assert run.instructions == sum(run.profile.values()) == sum(run.fidelity.values())
        assert list(run.lanes.values()) == [1, 1, times * lanes]
        assert run.counters["global_read_bytes"] == 4 * times * lanes
        assert run.counters["unique_read_bytes"] == max(8, 4 * lanes)


def test_launches_that_were_small_stay_on_one_thread():
    """By the instructions of earlier launches: a single one does not hide that the kernel may run long."""
    kernel = Kernel(TARGET, LOOP)
    kernel.gpu.threads = 4
    used = []
    for times in (2, 2, 5000, 2, 2):
        data = kernel.gpu.upload(np.array([times, 64] + [0] * 62, np.uint32))
        launched = Launch(kernel.kernel, Geometry.of(8, 64), [data, data])
        launched.run()
        used.append(launched.workers)
    assert used == [4, 1, 1, 4, 4]


def test_a_run_is_the_callers():
    """Whoever changes a run's figures changes no other run."""
    kernel = Kernel(TARGET, LOOP)
    data = np.array([2, 64] + [0] * 62, np.uint32)
    first = kernel.run(data).run
    kept = replace(first, **{name: dict(getattr(first, name)) for name in ("counters", "fidelity", "profile", "lanes")})
    for figures in (first.counters, first.fidelity, first.profile, first.lanes):
        figures.clear()
    again = kernel.run(data).run
    assert replace(again, seconds=kept.seconds) == kept


def test_hidden_arguments_follow_the_geometry():
    """A kernel's last geometry is remembered; another one, or another dynamic LDS, has its own arguments."""
    kernel = Kernel(TARGET, "").kernel
    kinds = ("hidden_block_count_x", "hidden_group_size_x", "hidden_remainder_x", "hidden_dynamic_lds_size")
    hidden = [Argument("", 16 + 4 * at, 4, kind) for at, kind in enumerate(kinds)]
    kernel = type(kernel)(kernel.module, replace(kernel.info, arguments=(*kernel.info.arguments, *hidden), kernarg_size=32))
    drawn = (Geometry.of(1, 64), Geometry.of(2, 64), Geometry.of(2, 64, 16), Geometry.of(None, 64, 16, 65), Geometry.of(1, 64))
    for geometry in drawn:
        words = np.frombuffer(fill(kernel.info, [1, 2], kernel.hidden_segment(geometry)), np.uint32).tolist()
        size = geometry.global_size[0]
        assert words == [1, 0, 2, 0, size // 64, 64, size % 64, geometry.dynamic_lds]


def test_a_desk_forgets_the_modes_of_the_launch_before():
    desk = Desk()
    desk.set_programs({1: 10})
    desk.set_program(3, 30)
    desk.set_programs({1: 10})
    assert {number: address for number, address in enumerate(desk.programs) if address} == {1: 10}
    desk.set_programs({2: 20})
    assert {number: address for number, address in enumerate(desk.programs) if address} == {2: 20}


def test_accounts_are_those_of_each_instruction():
    """Instructions of one mnemonic share an account; each row of a kernel has its own instruction's."""
    emitted = asm.emit(operators.TiledComputation(64, 64, 64, target="mi300x", dtype="f16"))
    kernel = Device("mi300x").load(emitted.assemble())[emitted.name]
    program = kernel.module.program(kernel.info, kernel.mode, True)
    entry = (kernel.info.start + kernel.module.bias - program.base) // 4
    program.lower(entry)
    accounts = Accounts.of([program], entry)
    memory = dict(zip(accounts.memory.tolist(), accounts.moved.tolist(), strict=True))
    for row, record in enumerate(accounts.records.tolist()):
        inst = program.instructions[record]
        classes, fidelities = np.split(accounts.counted[row, :-1], [len(CLASSES)])
        assert [CLASSES[at] for at in classes.nonzero()[0]] == [instruction_class(inst)] and classes.sum() == 1
        assert [FIDELITIES[at] for at in fidelities.nonzero()[0]] == [fidelity_of(inst).kind] and fidelities.sum() == 1
        assert accounts.counted[row, -1] == (matrix_flops(inst) if inst.spec.kind == "matrix" else 0)
        moved = [bytes_moved(inst).get(key, 0) for key in MOVED] if inst.spec.memory else None
        assert memory.get(row) == moved


@settings(max_examples=examples(20))
@given(st.lists(st.tuples(st.sampled_from((1, 3, 70)), st.integers(0, 1), st.integers(1, 4)), min_size=4, max_size=12))
def test_a_launch_that_is_kept_sees_its_own_arguments_and_memory(launches):
    """Grids, buffers and numbers of iterations alternate; allocations come and go between launches of one geometry."""
    kernel = Kernel(TARGET, LOOP)
    gpu = kernel.gpu
    gpu.threads = 2
    out = gpu.zeros(64, np.uint32)
    for grid, fresh, times in launches:
        data = gpu.upload(np.array([times, 64] + [0] * 62, np.uint32))
        run = kernel.kernel.launch(grid=grid, args=[data, out])
        assert sorted(run.profile.values())[-6:] == [times * grid] * 6
        assert run.call["args"][0] is data and run.counters["global_read_bytes"] == 256 * times * grid
        if fresh:
            gpu.free(data)


def test_a_kept_launch_is_not_used_after_a_change_of_limits_or_without_its_module():
    kernel = Kernel(TARGET, LOOP)
    gpu, k = kernel.gpu, kernel.kernel
    data = gpu.upload(np.array([9, 64] + [0] * 62, np.uint32))
    ended = [k.launch(grid=2, args=[data, data]) for _ in range(4)]
    assert len({run.instructions for run in ended}) == 1
    assert Launch.again(k, Geometry.of(2, 64), [data, data], None) is not None, "it was kept"
    again = [k.launch(grid=2, args=[data, data]) for _ in range(3)]
    assert again[-1].instructions == ended[0].instructions
    for change, error in (({"max_instructions": 5}, InstructionLimit), ({"timeout": 1e-9}, TimeLimit)):
        for name, value in change.items():
            before = getattr(gpu, name)
            setattr(gpu, name, value)
            with pytest.raises(error):
                k.launch(grid=2, args=[data, data])
            setattr(gpu, name, before)
    assert k.launch(grid=2, args=[data, data]).instructions == ended[0].instructions
    with pytest.raises(LaunchError, match="takes 2 arguments"):
        k.launch(grid=2, args=[data])
    assert k.launch(grid=2, args=[data, data]).instructions == ended[0].instructions
    gpu.unload(k.module)
    with pytest.raises(LaunchError, match="unloaded"):
        k.launch(grid=2, args=[data, data])


def _buffer(kernel, times, lanes=64):
    return kernel.gpu.upload(np.array([times, lanes] + [0] * 62, np.uint32))


def _kept(grid=3):
    """Returns a kernel with a kept launch of this grid."""
    kernel = Kernel(TARGET, LOOP)
    kernel.gpu.threads = 1
    for _ in range(3):
        kernel.kernel.launch(grid=grid, args=[_buffer(kernel, 1)] * 2)
    return kernel


def test_launches_that_differ_in_their_arguments_are_summed_up():
    """A launch of many steps ends the loop, and others begin it again."""
    kernel = _kept()
    buffers = [_buffer(kernel, times, lanes) for times, lanes in ((2, 64), (7, 3), (2, 64), (9000, 5), (1, 64), (4, 0))]
    calls = [[buffer, buffers[0]] for buffer in buffers]
    alone = [kernel.kernel.launch(grid=3, args=args) for args in calls]
    found = list(launches(kernel.kernel, Geometry.of(3, 64), calls))
    assert [count for count, _ in found] == [3, 1, 2]
    for run, expected in zip((run for _, run in found), (alone[:3], alone[3:4], alone[4:]), strict=True):
        assert run.instructions == sum(each.instructions for each in expected)
        for figures in ("fidelity", "profile", "lanes"):
            summed = sum((Counter(getattr(each, figures)) for each in expected), Counter())
            assert Counter(getattr(run, figures)) == summed
    again = kernel.kernel.launch(grid=3, args=calls[1])
    assert replace(again, seconds=0) == replace(alone[1], seconds=0), "nothing is left of the others"


@pytest.mark.parametrize(("bad", "error"), [(None, MemoryFault), (900, InstructionLimit)], ids=["fault", "too long"])
def test_a_launch_that_fails_comes_after_the_runs_of_those_before(bad, error):
    kernel = _kept()
    good = _buffer(kernel, 2)
    wrong = good.address + (1 << 40) if bad is None else _buffer(kernel, bad)
    kernel.gpu.max_instructions = 5000
    kernel.kernel.launch(grid=3, args=[good, good])
    runs = launches(kernel.kernel, Geometry.of(3, 64), [[good, good], [good, good], [wrong, good], [good, good]])
    assert next(runs)[0] == 2
    with pytest.raises(error):
        list(runs)
    assert kernel.kernel.launch(grid=3, args=[good, good]).profile[0] == 3


def test_a_kept_launch_does_not_keep_its_device():
    kernel = Kernel(TARGET, LOOP)
    data = kernel.gpu.upload(np.array([9, 64] + [0] * 62, np.uint32))
    for _ in range(4):
        kernel.kernel.launch(grid=2, args=[data, data])
    held = [weakref.ref(kernel.gpu), weakref.ref(kernel.gpu.memory)]
    del kernel, data
    assert [one() for one in held] == [None, None]


@pytest.mark.parametrize(
    ("lines", "settled"),
    [(LOOP, True), ("s_getpc_b64 s[10:11]\ns_add_u32 s10, s10, 8\ns_setpc_b64 s[10:11]\n", False)],
    ids=["loop", "computed jump"],
)
def test_accounts_hold_until_later_code_may_add_to_them(lines, settled):
    """Each kernel of a module makes a new version of the program; its accounts need not be made anew."""
    kernel = Kernel(TARGET, lines).kernel
    program = kernel.module.program(kernel.info, kernel.mode, True)
    entry = (kernel.info.start + kernel.module.bias - program.base) // 4
    steps = iter(range(3))
    program.lower(entry, lambda: next(steps, None) is not None)
    assert not Accounts.of([program], entry).settled, "only a part is lowered"
    program.lower(program.following(max(program.instructions))[0])  # as the wave that gets there
    found = Accounts.of([program], entry)
    assert found.settled == settled and set(found.records.tolist()) == program.executable(entry)
