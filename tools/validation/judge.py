"""Rows compared with the model, and the table of errors."""

from __future__ import annotations

import gc
import hashlib
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from simgpu import hardware
from simgpu.advice.costs import line_costs
from simgpu.advice.counters import KILOBYTE, counters
from simgpu.hardware.code_object.arguments import Geometry
from simgpu.hardware.descriptor import HardwareDescriptor
from simgpu.hardware.errors import SimError
from simgpu.hardware.rates.pipelines import pipelines
from simgpu.hardware.rates.sustained import sustained_rates
from simgpu.sampling.samples import sample
from simgpu.timing.gpu import Mechanisms
from simgpu.timing.predict import Prediction, SampledLaunch, predict
from simgpu.tools.validation import (
    aiter,
    babelstream,
    hipkittens,
    kittens,
    laplacian,
    measured,
    mgpusim,
    seismic,
    shallow,
    tensile,
    tile_kernel,
    workloads,
)
from simgpu.tools.validation.aiter import NotJudged
from simgpu.tools.validation.rows import Measurement, RowLaunch, read

LATENCY_US = 12.0  # below it, AITER's rows are a class of their own


@dataclass(frozen=True)
class RowVerdict:
    """A row with the model's prediction."""

    rows: str  # name of the set
    group: str  # the row's class, such as "latency"
    board: str
    type: str
    name: str  # kernel and shape
    measured: float  # in the row's unit
    predicted: float  # in the same unit
    fits: bool = False  # the row may calibrate
    low: float = 0.0  # lower end of the band; 0 if the prediction has none
    high: float = 0.0  # upper end
    limit: str = ""  # `Prediction.limit`, of several launches that of the longest

    @property
    def within(self) -> bool:
        """True if the measurement is in the band."""
        return self.low <= self.measured <= self.high

    @property
    def error(self) -> float:
        return self.predicted / self.measured - 1


@dataclass
class Findings:
    """Judged rows, and reasons why the others were not judged."""

    judged: list[RowVerdict] = field(default_factory=list)
    reasons: Counter[tuple[str, str]] = field(default_factory=Counter)  # by set and reason


# Judges a row under some mechanisms, so that an ablation need not sample again.
Judge = Callable[[Mechanisms], RowVerdict]


@dataclass(frozen=True)
class MeasurementFolders:
    """Folders with measurements."""

    tables: Path | None  # *.csv.gz
    aiter: Path | None = None  # a checkout of AITER
    hipkittens: Path | None = None  # a checkout of HipKittens
    examples: Path | None = None  # a checkout of HPCTrainingExamples
    mgpusim: Path | None = None  # a checkout of MGPUSim
    babelstream: Path | None = None  # a checkout of BabelStream
    lab_notes: Path | None = None  # a checkout of amd-lab-notes

    def rows(self, name: str) -> Sequence[Any]:
        """Returns the rows of a set; those of AITER and Tensile in the order of their hashes."""
        if name == "attention":
            return list(hipkittens.rows(self.hipkittens)) if self.hipkittens else []
        if name == "kittens":
            return list(kittens.rows(self.hipkittens)) if self.hipkittens else []
        if name == "laplacian":
            return list(laplacian.rows(self.lab_notes)) if self.lab_notes else []
        if name == "seismic":
            return list(seismic.rows(self.examples)) if self.examples else []
        if name == "shallow":
            return list(shallow.rows()) if self.examples else []
        if name == "mgpusim":
            return list(mgpusim.rows(self.mgpusim)) if self.mgpusim else []
        if name == "workloads":
            return list(workloads.rows(self.mgpusim)) if self.mgpusim else []
        if name == "babelstream":
            return list(babelstream.rows()) if self.babelstream else []
        rows = read(self.tables, f"{name}*.csv.gz") if self.tables else []
        return rows if name == "measured" else sorted(rows, key=lambda row: hashlib.sha256(row.key.encode()).digest())


def judges(sources: MeasurementFolders, sets: Sequence[str], limit: int | None, found: Findings) -> Iterable[Judge]:
    """Judges the rows of the sets into `found`, and yields each one's judge; limit: rows of AITER, and of Tensile, by hash."""
    makers: dict[str, Callable[[Any, Path | None], Judge]] = {
        "measured": _judge_measured, "tensile": _tensile, "aiter": _aiter, "attention": _attention, "seismic": _seismic,
        "mgpusim": _mgpusim, "babelstream": _babelstream, "shallow": _shallow, "workloads": _workload, "kittens": _kittens,
        "laplacian": _laplacian,
    }  # fmt: skip
    checkouts = {
        "seismic": sources.examples, "mgpusim": sources.mgpusim, "babelstream": sources.babelstream, "shallow": sources.examples,
        "workloads": sources.mgpusim, "kittens": sources.hipkittens, "laplacian": sources.lab_notes,
    }  # fmt: skip
    for name in sets:
        taken = 0
        for row in sources.rows(name):
            if name in ("tensile", "aiter") and limit is not None and taken >= limit:
                break
            gc.collect()  # a device and its kernels refer to each other, so a row's gigabytes outlive it
            try:
                judge = makers[name](row, checkouts.get(name, sources.aiter))
                found.judged.append(judge(Mechanisms()))
            except NotJudged as why:
                found.reasons[name, str(why)] += 1
                continue
            except SimError as error:
                found.reasons[name, f"{type(error).__name__}: {str(error)[:70]}"] += 1
                continue
            taken += 1
            yield judge


def _judge_measured(row: Measurement, _checkout: Path | None) -> Judge:
    _check(row)
    chip = measured.chip_of(row)

    def judge(on: Mechanisms) -> RowVerdict:
        got = measured.predict_row(row, on)
        return RowVerdict(
            "measured", row.kernel.split()[0], chip.name, row.dtype, f"{row.kernel} {row.shape}", row.value, got, True
        )

    return judge


def _tensile(row: Measurement, _checkout: Path | None) -> Judge:
    _check(row)
    chip = tensile.board_of(row)
    kernel = tensile.kernel_of(row, chip)
    cycles = tensile.cycles_of(row, kernel, chip)
    m, n, batch, k = tensile.shape_of(row)

    def judge(on: Mechanisms) -> RowVerdict:
        found = (
            tile_kernel.at_its_clock(kernel, chip, m, n, k, batch, on=on)[0] if tensile.split_is_told(row, chip)
            else tile_kernel.tuned_time(kernel, chip, m, n, k, batch, on=on)
        )  # fmt: skip
        got = found.cycles + tensile.overhead(kernel, chip) * on.launch
        name = f"{row.kernel.split()[-1]} {row.shape}"
        return RowVerdict("tensile", "long", chip.name, kernel.atom.a_type, name, cycles, got, row.fits)

    return judge


def _aiter(row: Measurement, checkout: Path | None) -> Judge:
    _check(row)
    if checkout is None:
        raise NotJudged("no checkout of AITER was given")
    call = aiter.call_of(row, checkout)
    sampled = sampled_call(call)
    group = "latency" if row.value < LATENCY_US else row.group

    def judge(on: Mechanisms) -> RowVerdict:
        made = predict(sampled, warm=call.warm, on=on)
        got = profiled_us(call, made)
        low, high = (got * end / made.seconds for end in (made.low, made.high))
        name = f"{call.path.name} {row.shape}"
        return RowVerdict("aiter", group, call.board, row.dtype, name, row.value, got, low=low, high=high, limit=made.limit)

    return judge


def _attention(row: hipkittens.MeasuredAttention, checkout: Path | None) -> Judge:
    if checkout is None:
        raise NotJudged("no checkout of AITER was given")
    sampled = sampled_call(aiter.attention(checkout, hipkittens.BOARD, row.shape))
    return _judge_launch(sampled, RowVerdict("attention", row.group, hipkittens.BOARD, "bf16", row.name, row.us, 0, row.fits), 1e6)


def _kittens(row: kittens.MeasuredKitten, checkout: Path | None) -> Judge:
    assert checkout  # its rows came from there
    verdict = RowVerdict("kittens", row.group, hipkittens.BOARD, row.element, row.name, row.us, 0)
    return _judge_launches([RowLaunch(1, kittens.sampled_kitten(checkout, row), row.warm)], verdict, _between_events)


def _seismic(row: seismic.MeasuredStencil, checkout: Path | None) -> Judge:
    assert checkout  # its rows came from there
    verdict = RowVerdict("seismic", row.group, seismic.BOARD, "f32", row.name, 1e3 * row.seconds, 0, row.fits)
    return _judge_launch(seismic.sampled_stencil(checkout, row), verdict, 1e3)


def _laplacian(row: laplacian.MeasuredLaplacian, checkout: Path | None) -> Judge:
    assert checkout  # its rows came from there
    launches = laplacian.sampled_laplacian(checkout, row)
    verdict = RowVerdict("laplacian", row.group, laplacian.BOARD, "f64", row.name, row.value, 0, True)
    return _judge_fetched(launches, verdict) if row.counter else _judge_launches(launches, verdict, _between_events)


def _mgpusim(row: mgpusim.MeasuredProgram, checkout: Path | None) -> Judge:
    assert checkout  # its rows came from there
    verdict = RowVerdict("mgpusim", row.group, mgpusim.BOARD, "f32", row.name, row.us, 0)
    return _judge_launches([RowLaunch(1, mgpusim.sampled_program(checkout, row))], verdict, _between_events)


def _babelstream(row: babelstream.MeasuredStream, checkout: Path | None) -> Judge:
    assert checkout  # its kernels are there
    verdict = RowVerdict("babelstream", row.group, row.board, "f64", row.name, 1e3 * row.seconds, 0)
    return _judge_launch(babelstream.sampled_stream(checkout, row), verdict, 1e3)


def _shallow(row: shallow.MeasuredSolver, checkout: Path | None) -> Judge:
    assert checkout  # its kernels are there
    verdict = RowVerdict("shallow", row.group, shallow.BOARD, "f32", row.name, row.us, 0)
    return _judge_launches(shallow.sampled_solver(checkout, row), verdict, _by_a_profiler if row.kernel else _with_launches)


def _workload(row: workloads.MeasuredWorkload, checkout: Path | None) -> Judge:
    assert checkout  # its rows came from there
    verdict = RowVerdict("workloads", row.group, workloads.BOARD, "f32", row.name, row.us, 0)
    return _judge_launches(workloads.sampled_workload(checkout, row), verdict, _between_events)


Launches = Sequence[tuple[int, Prediction]]  # how often each runs


def _with_launches(made: Launches) -> float:
    """Returns seconds of launches if the host waits for each."""
    return sum(times * one.seconds for times, one in made)


def _by_a_profiler(made: Launches) -> float:
    """Returns seconds of kernels between a profiler's timestamps."""
    return sum(times * one.profiled for times, one in made)


def _between_events(made: Launches) -> float:
    """Returns seconds between two events. The queue has the next launch already, so each takes what a profiler sees of it."""
    return _by_a_profiler(made) + made[0][1].between_events - made[0][1].profiled


def _judge_launches(
    launches: Sequence[RowLaunch], verdict: RowVerdict, seconds: Callable[[Launches], float]
) -> Judge:
    """Returns the judge that adds up launches on warm caches, in us. L2s are so only if the lines of all fit. verdict: as
    `_judge_launch`.

    seconds: adds them up as they were measured.
    """

    def judge(on: Mechanisms) -> RowVerdict:
        made = [(one.times, predict(one.sampled, warm=one.warm, on=on)) for one in launches]
        if len(made) > 1 and sum(one.traffic.of_an_xcd for _, one in made) > made[0][1].sampled.chip.l2_bytes:
            made = [(one.times, predict(one.sampled, warm="last" if one.warm is True else one.warm, on=on)) for one in launches]
        whole, low, high = (sum(times * getattr(one, name) for times, one in made) for name in ("seconds", "low", "high"))
        got = 1e6 * seconds(made)
        longest = max(made, key=lambda pair: pair[0] * pair[1].seconds)[1].limit
        return replace(verdict, predicted=got, low=got * low / whole, high=got * high / whole, limit=longest)

    return judge


def _judge_fetched(launches: Sequence[RowLaunch], verdict: RowVerdict) -> Judge:
    """Returns the judge that adds up FETCH_SIZE of launches, in GB. verdict: as `_judge_launch`."""

    def judge(on: Mechanisms) -> RowVerdict:
        made = [(one.times, predict(one.sampled, warm=one.warm, on=on)) for one in launches]
        kilobytes = (times * counters(one, line_costs(one, lambda offset: ""))["FETCH_SIZE"] for times, one in made)
        return replace(verdict, predicted=1e-9 * KILOBYTE * sum(kilobytes))

    return judge


def _judge_launch(sampled: SampledLaunch, verdict: RowVerdict, unit: float) -> Judge:
    """Returns the judge that predicts a launch. verdict: of its row, without a prediction. unit: the row's times in a second."""

    def judge(on: Mechanisms) -> RowVerdict:
        found = predict(sampled, on=on)
        low, high = unit * found.low, unit * found.high
        return replace(verdict, predicted=unit * found.seconds, low=low, high=high, limit=found.limit)

    return judge


def _check(row: Measurement) -> None:
    if row.value <= 0:
        raise NotJudged("its measurement is 0")


def profiled_us(call: aiter.ShippedLaunch, made: Prediction) -> float:
    """Returns us of a call as AITER's tuner measures it: the sum of a profiler's times of its kernels.

    Source: aiter/test_common.py, `get_trace_perf`, which adds `self_device_time_total`.
    """
    return 1e6 * (made.profiled + zeroing(call, pipelines(made.sampled.chip.arch).profiled_us))


def zeroing(call: aiter.ShippedLaunch, launch_us: float) -> float:
    """Seconds of the memset before a kernel that adds to its output. launch_us: of its launch."""
    return launch_us * 1e-6 + call.zeroed / sustained_rates(board(call.board)).hbm if call.zeroed else 0.0


def board(name: str) -> HardwareDescriptor:
    """Returns a board by name; mi308x is an MI300X with 80 CUs, by AITER's tables."""
    if name == "mi308x":
        return replace(hardware.target("mi300x"), name="mi308x", num_cus=80)
    return hardware.target(name)


def sampled_call(call: aiter.ShippedLaunch) -> SampledLaunch:
    """Samples a shipped kernel's launch, on zeros."""
    import simgpu

    chip = board(call.board)
    device = simgpu.Device(chip.arch, threads=1)
    device.descriptor = chip
    buffers = {name: device.alloc(nbytes + 4096) for name, nbytes in call.buffers.items()}  # loads ahead reach past the end
    kernel = device.load(call.path)[call.kernel]
    arguments = call.arguments(kernel, {name: buffer.address for name, buffer in buffers.items()})
    return sample(kernel, Geometry.of(call.grid, call.threads), arguments, restore=False)


@dataclass(frozen=True)
class ErrorLine:
    """A line of the table, errors in percent."""

    rows: str  # name of the set, with " (fit)" if its rows may calibrate
    group: str  # class, or "all"
    board: str
    type: str
    count: int  # rows
    mape: float  # mean absolute error
    median: float  # of the absolute errors
    p90: float  # 90th percentile of the absolute errors
    bias: float  # mean of the signed errors
    within: float | None  # percent of the measurements in the printed band; None without bands
    tau: float | None  # Kendall's tau of predictions and measurements: 1 in the same order; None if no two measurements differ


def table(judged: Sequence[RowVerdict]) -> list[ErrorLine]:
    """Groups errors by set, class, board and type, and all of each set; rows that may calibrate are a set of their own, "(fit)"."""
    kept: dict[tuple[str, str, str, str], list[RowVerdict]] = defaultdict(list)
    for one in judged:
        rows = f"{one.rows} (fit)" if one.fits else one.rows
        for key in ((rows, one.group, one.board, one.type), (rows, "all", one.board, "all"), (rows, "all", "all", "all")):
            kept[key].append(one)
    return _lines(kept)


def table_by_limit(judged: Sequence[RowVerdict]) -> list[ErrorLine]:
    """Groups the errors of predictions by board and by what limits them; rows of all sets, but for those that may calibrate."""
    kept: dict[tuple[str, str, str, str], list[RowVerdict]] = defaultdict(list)
    for one in judged:
        if one.limit and not one.fits:
            kept["all", one.limit, one.board, "all"].append(one)
    return _lines(kept)


def _lines(kept: Mapping[tuple[str, str, str, str], Sequence[RowVerdict]]) -> list[ErrorLine]:
    made = []
    for key, rows_of in sorted(kept.items()):
        errors = [100 * one.error for one in rows_of]
        sizes = sorted(map(abs, errors))
        banded = [one.within for one in rows_of if one.high]
        within = 100 * statistics.mean(banded) if banded else None
        ninth = sizes[(9 * len(sizes) - 1) // 10]
        middle, bias, tau = statistics.median(sizes), statistics.mean(errors), kendall(rows_of)
        made.append(ErrorLine(*key, len(errors), mape(errors), middle, ninth, bias, within, tau))
    return made


def kendall(judged: Sequence[RowVerdict]) -> float | None:
    """Returns Kendall's tau: pairs in the measured order less those in the opposite one, as a fraction of pairs whose measurements
    differ. None without such pairs."""
    measured, predicted = np.array([[one.measured, one.predicted] for one in judged]).T
    orders = np.sign(measured[:, None] - measured)
    pairs = np.count_nonzero(orders)
    return float(np.sum(orders * np.sign(predicted[:, None] - predicted)) / pairs) if pairs else None


def mape(errors: Sequence[float]) -> float:
    """Mean absolute error."""
    return statistics.mean(map(abs, errors))


def document(line: ErrorLine) -> dict[str, Any]:
    """Returns a JSON document."""
    return vars(line).copy()
