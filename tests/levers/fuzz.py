"""Run random programs under random choices; compare their results with unmodified Thunder and double precision.

A case is one program with one set of choices, in one mode. Two cases of a program in a mode have different plans, and
no case has the plan without choices. ``python -m tests.levers.fuzz --out FILE`` starts the full run. If FILE exists, it
resumes the run: the seeds in FILE do not run again. ``--replay MODE SEED CHOICES`` runs a single case.

The required accuracy depends on the kernels of the plan. If unmodified Thunder runs all these kernels, or if regions
run uncompiled, results must be bitwise equal to unmodified Thunder's. If the plan without choices runs all these
kernels, results must be bitwise equal to its results. In other cases, the distance from the results in double precision
must be at most `Known.allowed`; if `Known.comparable` is false, results are compared with unmodified Thunder, within a
tolerance.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import json
import math
import os
import resource
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any, Literal

import torch
from thunder.common import transform_to_torch_types
from thunder.core.transform_common import _inplace_copy_sanity_check

import workbench
from tests.levers.batched import NoCppError, regions
from tests.strategies import LARGEST, Masks, RandomProgram, choices_for, drawn
from workbench.bench import Workbench
from workbench.compiler import api
from workbench.compiler.planner import kernel_identity
from workbench.compiler.trace.fingerprints import fusion_key
from workbench.errors import ChoiceError, PlanError, ProgramError
from workbench.runs.measure import accuracy, tensor_diff
from workbench.runs.measure.accuracy import Stepper
from workbench.runs.measure.tensor_diff import RecordedTensor

SEED = 3
TORCH, REGIONS, INDUCTOR = "torch", "regions", "inductor"
"""Modes: no regions; regions of torch.compile that run as PyTorch functions; regions that Inductor compiles."""
MODES = (TORCH, REGIONS, INDUCTOR)
CAPTURES: tuple[Literal["interpreter", "dynamo"], ...] = ("interpreter", "dynamo")
EXECUTORS = {TORCH: "torch", REGIONS: "torchcompile", INDUCTOR: "torchcompile"}
SETS = {TORCH: 24, REGIONS: 32, INDUCTOR: 16}
"""Largest number of random sets of choices that are tried for each program, by mode."""
IN_VAIN = 6
"""After this number of consecutive sets of choices without a new plan, no more sets are tried for the program."""
INPUT_SEEDS = 8
FACTOR = 32.0
"""Allowed distance from double precision for a plan with new kernels, as a multiple of Thunder's own distance."""
COARSE = 0.1
"""Upper limit of the allowed distance from double precision, as a share of the tensor's size (see `Known.sizes`).

If unmodified Thunder's own distance is more than a quarter of this limit, a plan is compared with unmodified Thunder's
results and not with double precision.
"""

type Step = dict[str, RecordedTensor]


class Unusable(Exception):
    """The program has no reference results. The message gives a short reason."""


@dataclasses.dataclass(frozen=True)
class Found:
    """A case that has wrong results, raises an error, or has a plan that the proof refuses. `what` has the details."""

    mode: str
    seed: int
    choices: dict[str, str]
    what: str

    def to_json(self, program: RandomProgram) -> dict[str, Any]:
        replay = f"python -m tests.levers.fuzz --replay {self.mode} {self.seed} '{json.dumps(self.choices)}'"
        return {**dataclasses.asdict(self), "program": repr(program), "replay": replay}


def drawn_program(mode: str, seed: int) -> RandomProgram:
    """Return the program of a mode and a seed. It is short, and shorter if Inductor compiles its regions."""
    lines = 6 if mode == INDUCTOR else 8
    return drawn(Random(f"program {seed}"), draws=seed % 3 == 0, writes=seed % 2 == 0, most_lines=lines)


def with_telling_inputs(program: RandomProgram) -> tuple[RandomProgram, Step, Step]:
    """Find inputs for which an error of a plan would be visible in the program's results.

    Returns
    -------
    RandomProgram
        The program with these inputs.
    Step
        The results of eager PyTorch.
    Step
        The results of eager PyTorch in double precision.

    Raises
    ------
    Unusable
        If PyTorch refuses the program, or if none of `INPUT_SEEDS` inputs is suitable.
    """
    for i in range(INPUT_SEEDS):
        tried = dataclasses.replace(program, input_seed=program.input_seed + i)
        masks = Masks()
        try:
            function, args, kwargs = tried.build_eager(masks)
            stepper = Stepper(function, args, kwargs, seed=SEED)
            eager = accuracy.first_step(stepper, SEED)
            again = Masks(masks.drawn)
            function, args, kwargs = tried.build_double(again)
            doubles = Stepper(function, args, kwargs, seed=SEED)
            cotangents = stepper.cotangents
            doubles.cotangents = None if cotangents is None else [each.double() for each in cotangents]
            double = accuracy.first_step(doubles, SEED)
        except Exception as error:
            raise Unusable(f"PyTorch refuses: {type(error).__name__}") from error
        if tells(eager) and tells(double):
            return tried, eager, double
    raise Unusable("no inputs that would show errors")


def tells(step: Step) -> bool:
    """Return whether an error in these results would be visible.

    All floating-point results must be finite. The largest output and the largest gradient must be neither zero nor very
    large.
    """
    by_kind: dict[str, list[float]] = {}
    for entry in step.values():
        if entry.value is not None and entry.value.is_floating_point():
            if not bool(entry.value.isfinite().all()):
                return False
            by_kind.setdefault(entry.kind, []).append(float(entry.value.double().abs().max()))
    sizes = [max(by_kind.get(kind, [1.0])) for kind in ("output", "grad")]
    return all(0 < size < LARGEST**2 for size in sizes)


class Known:
    """A program and its three references: unmodified Thunder, eager PyTorch, and eager PyTorch in double precision.

    Parameters
    ----------
    program : RandomProgram

    Raises
    ------
    Unusable
        If PyTorch or unmodified Thunder refuses the program, if no suitable inputs are found, or if unmodified Thunder
        accepts the program only by ThunderFX.
    """

    def __init__(self, program: RandomProgram) -> None:
        self.program, self.eager, self.double = with_telling_inputs(program)
        self.function, args, kwargs = self.program.build()
        try:
            self.jitted = api.unmodified(self.function)
            self.stock = accuracy.first_step(Stepper(self.function, args, kwargs, self.jitted, seed=SEED), SEED)
        except Exception as error:
            raise Unusable(f"Thunder refuses: {type(error).__name__}") from error
        self.kernels = set(kernel_identity.kernels_of(self.jitted))
        if self.jitted.way != "thunder.jit":
            # To run a plan, its two traces replace the two traces of the whole program. ThunderFX has traces only for
            # parts of the program.
            raise Unusable(f"unmodified Thunder accepts it only by {self.jitted.way}")
        self.entry = self.jitted._lc_cs.interpreter_cache[-1]
        self.share = max((self.share_of(name, self.stock) for name in self.double), default=0.0)

    def share_of(self, name: str, step: Step) -> float:
        """Return a tensor's distance from its value in double precision, as a share of the tensor's size."""
        exact_value, value = self.double[name].value, step[name].value if name in step else None
        if exact_value is None and value is None:
            return 0.0
        if exact_value is None or value is None or value.shape != exact_value.shape:
            return math.inf
        if not value.is_floating_point():
            return 0.0 if bool((value == exact_value).all()) else math.inf
        if value.numel() == 0:
            return 0.0
        worst = float((value.double() - exact_value.double()).abs().nan_to_num(nan=math.inf).max())
        return worst / self.sizes[name] if worst else 0.0

    @cached_property
    def sizes(self) -> dict[str, float]:
        """Size of each tensor: the largest absolute value of its elements, with a lower limit.

        The limit is a share of the largest size of all tensors of the same kind, such as all gradients. Without it, a
        tensor of only rounding errors would have a tiny size.
        """
        largest: dict[str, float] = {}
        own = {}
        for name, entry in self.double.items():
            own[name] = tensor_diff.size_of(entry.value)
            largest[entry.kind] = max(largest.get(entry.kind, 0.0), own[name])
        return {
            name: max(own[name], tensor_diff.FLOOR * largest[entry.kind], torch.finfo(torch.float64).tiny)
            for name, entry in self.double.items()
        }

    @property
    def comparable(self) -> bool:
        """True if unmodified Thunder is close to double precision. Then plans must be close to double precision too."""
        return 4 * self.share <= COARSE

    @property
    def allowed(self) -> float:
        """Largest allowed distance of a plan's tensor from double precision, as a share of the tensor's size."""
        least = torch.finfo(torch.float32).eps
        return max(min(FACTOR * max(self.share, least), COARSE), 4 * self.share)

    def run(self, plan: api.Plan) -> Step:
        """Run one step of a plan, with the prologue, autograd function and epilogue of unmodified Thunder."""
        split = plan.split
        _inplace_copy_sanity_check(split.forward)
        forward = transform_to_torch_types(split.forward)
        self.jitted._lc_cs.interpreter_cache[-1] = self.entry._replace(
            computation_fn=forward.python_callable(),
            backward_fn=None if split.backward is None else split.backward.python_callable(),
        )
        _, args, kwargs = self.program.build()
        stepper = Stepper(self.function, args, kwargs, self.jitted, seed=SEED)
        return accuracy.first_step(stepper, SEED)

    def far(self, step: Step) -> str:
        """Return, as text, the tensors whose distance from double precision exceeds `allowed`. Empty if none."""
        shares = {name: self.share_of(name, step) for name in self.double}
        return ", ".join(
            f"{name} is {share:.3g} of its size from double precision, {self.allowed:.3g} allowed"
            for name, share in shares.items()
            if share > self.allowed
        )

    def other(self, step: Step) -> str:
        """Return, as text, the tensors that are too far from unmodified Thunder's results. Empty if none."""
        return ", ".join(
            f"{error.name} is {error.max_rel_error:.3g} of its size from unmodified Thunder"
            for error in tensor_diff.compare_tensors(step, self.stock, "unmodified Thunder")
            if error.max_rel_error > COARSE * tensor_diff.FLOOR and not error.ok
        )


class Subject:
    """A bench, which makes plans of a program, and the program's `Known`, which runs these plans.

    Parameters
    ----------
    mode : str
    known : Known
    capture : {'interpreter', 'dynamo'}, optional
    """

    def __init__(self, mode: str, known: Known, capture: Literal["interpreter", "dynamo"] = "interpreter") -> None:
        self.mode = mode
        self.known = known
        _, args, kwargs = known.program.build()
        self.bench = workbench.open(known.function, *args, executor=EXECUTORS[mode], capture=capture, **kwargs)

    def run(self, plan: api.Plan) -> Step:
        """Run one step of a plan; return its results."""
        return self.known.run(plan)

    @cached_property
    def base(self) -> Step:
        """Results of the plan without choices, with the executor of this mode."""
        return self.run(self.bench.stock_plan)

    @cached_property
    def base_kernels(self) -> set[str]:
        return set(kernels(self.bench.stock_plan))

    def wrong(self, plan: api.Plan) -> tuple[str, str]:
        """Run a plan. Return two texts: the required accuracy, and the tensors that miss it (empty if none)."""
        known, ran, step = self.known, set(kernels(plan)), self.run(plan)
        # In the mode `REGIONS`, regions run the same PyTorch functions as unmodified Thunder, so results must be
        # bitwise equal.
        if ran <= known.kernels or self.mode == REGIONS:
            return "bitwise", other_bits(step, known.stock, "unmodified Thunder")
        if plan is not self.bench.stock_plan and ran <= self.base_kernels:
            return "bitwise with regions", other_bits(step, self.base, "the plan without choices")
        if not known.comparable:
            return "tolerance against unmodified Thunder, which is far from double precision", known.other(step)
        return "tolerance against double precision", known.far(step)


def kernels(plan: api.Plan) -> dict[str, str]:
    return kernel_identity.kernels(trace for trace in (plan.split.forward, plan.split.backward) if trace is not None)


def other_bits(step: Step, expected: Step, against: str) -> str:
    """Return, as text, the names of tensors that are not bitwise equal to the expected ones. Empty if none."""
    names = sorted(tensor_diff.tensors_with_other_bits(step, expected))
    return f"{', '.join(names)} has other bits than under {against}" if names else ""


def signature(plan: api.Plan) -> tuple[Any, ...]:
    """Return a key. Two plans have equal keys if they execute the same statements and compile equally many fusions."""
    traces = [trace for trace in (plan.split.forward, plan.split.backward) if trace is not None]
    statements = tuple(
        (
            fusion_key(bsym) if bsym.sym.is_fusion else str(bsym.sym.name),
            tuple(arg.name for arg in bsym.flat_proxy_args),
            tuple(out.name for out in bsym.flat_proxy_outs),
        )
        for trace in traces
        for bsym in trace.bound_symbols
    )
    return statements, plan.counts["compilations"]


def choose(bench: Workbench, wanted: dict[str, str], counts: Counter[str]) -> bool:
    """Make the choices in `wanted`, after removing refused choices from it. Return whether choices were made."""
    while wanted:
        try:
            bench.choose(wanted)
            return True
        except ChoiceError as error:
            counts["refused"] += 1
            if error.site not in wanted:
                return False
            del wanted[error.site]
    return False


@functools.lru_cache(maxsize=1)
def known(program: RandomProgram) -> Known | Unusable:
    """Return the `Known` of a program, or the reason why the program has none.

    The last result is kept, because two modes test the same program.
    """
    try:
        return Known(program)
    except Unusable as reason:
        return reason


def cases(mode: str, seed: int, sets: int, counts: Counter[str]) -> Iterator[tuple[Found, RandomProgram]]:
    """Run the cases of a mode and a seed. Count them in `counts`. Yield each case that is wrong, and its program."""
    given = known(drawn_program(mode, seed))
    if isinstance(given, Unusable):
        counts[f"programs unusable: {given}"] += 1
        return
    counts["programs"] += 1
    if not given.comparable:
        counts["programs for which unmodified Thunder is far from double precision"] += 1
    with regions(compiled=mode == INDUCTOR) as made:
        try:
            subject = Subject(mode, given)
        except ProgramError:
            counts["programs that the workbench refuses with a reason"] += 1
            return
        drawn_sets = list(distinct(subject, seed, sets, counts))
        if mode == INDUCTOR:
            with made.together():
                for choices in ({}, *drawn_sets):
                    # These runs only collect kernels. If one raises an error, the same case raises it again below and
                    # is reported.
                    with contextlib.suppress(Exception):
                        subject.run(subject.bench.plan_under(choices))
        try:
            what = tried(subject, {}, counts)
        except NoCppError:
            # The C++ compiler refuses the code for the plan without choices, with which other plans would be compared.
            counts["programs for which Inductor writes no C++"] += 1
            return
        if what:
            yield Found(mode, seed, {}, what), given.program
            return
        for choices in drawn_sets:
            try:
                what = tried(subject, choices, counts)
            except NoCppError:
                counts["sets for which Inductor writes no C++"] += 1
                continue
            counts["cases"] += 1
            for lever in {id.partition(":")[0].partition(".")[0] for id in choices}:
                counts[f"cases with {lever}"] += 1
            if what:
                yield minimal(subject, Found(mode, seed, choices, what)), given.program
        counts["regions compiled"] += made.count


def replays(
    seed: int, sets: int, counts: Counter[str], captures: Sequence[Literal["interpreter", "dynamo"]] = CAPTURES
) -> Iterator[Found]:
    """Run the configs of a seed by `Config.jit`, which compiles the program again. Yield each case that is wrong."""
    given = known(drawn_program(TORCH, seed))
    if isinstance(given, Unusable) or not given.comparable:
        return
    for capture in captures:
        try:
            subject = Subject(TORCH, given, capture)
        except ProgramError:
            continue
        for choices in distinct(subject, seed, sets, counts):
            function, args, kwargs = given.program.build()
            try:
                call = dataclasses.replace(subject.bench.config, choices=choices).jit(function)
                what = given.far(accuracy.first_step(Stepper(function, args, kwargs, call, seed=SEED), SEED))
            except Exception:  # noqa: BLE001  # any error is reported
                what = traceback.format_exc(limit=-6)
            counts[f"configs by {capture}"] += 1
            if what:
                yield Found(TORCH, seed, choices, f"the config compiled by {capture}: {what}")


def distinct(subject: Subject, seed: int, sets: int, counts: Counter[str]) -> Iterator[dict[str, str]]:
    """Yield random sets of choices. Skip refused sets, and sets whose plan equals the stock plan or an earlier plan."""
    bench, in_vain = subject.bench, 0
    seen = {signature(bench.stock_plan)}
    for i in range(sets):
        if in_vain == IN_VAIN:
            return
        in_vain += 1
        random = Random(f"choices {subject.mode} {seed} {i}")
        # Every third set is added to the choices of the set before it. Other sets start without choices.
        if i % 3 != 2:
            while bench.choices:
                bench.undo()
        choices = choices_for(random, bench.sites())
        try:
            if not choose(bench, choices, counts):
                continue
        except PlanError:
            # The proof refuses this plan, although its options are offered as legal. `cases` runs the set and reports
            # this.
            yield {**bench.choices, **choices}
            continue
        if (found := signature(bench.plan)) in seen:
            counts["sets with an earlier plan or the stock plan"] += 1
            continue
        seen.add(found)
        in_vain = 0
        yield bench.choices


def tried(subject: Subject, choices: Mapping[str, str], counts: Counter[str] | None = None) -> str:
    """Run the plan of a set of choices. Return the faults of its results as text (empty if none).

    Raises
    ------
    NoCppError
        If the C++ compiler refuses the code that Inductor writes for a region.
    """
    try:
        kind, what = subject.wrong(subject.bench.plan_under(choices))
    except PlanError as error:
        kind, what = "refused by the proof", str(error)
    except NoCppError:
        raise
    except Exception:  # noqa: BLE001  # any error is reported
        kind, what = "error", traceback.format_exc(limit=-6)
    if counts is not None:
        counts[f"plans without choices: {kind}" if not choices else f"cases {kind}"] += 1
    return what


def minimal(subject: Subject, found: Found) -> Found:
    """Return a wrong case after removing all choices that its wrong results do not need."""
    for id in list(found.choices):
        fewer = {other: option for other, option in found.choices.items() if other != id}
        try:
            what = tried(subject, fewer)
        except (ChoiceError, NoCppError):
            continue
        if what and "ChoiceError" not in what:
            found = dataclasses.replace(found, choices=fewer, what=what)
    return found


def quick_compiler() -> None:
    """Make Inductor compile in this process, and Dynamo assume static shapes.

    If `ld.gold` is installed, link with it, because it takes half the time of the default linker.
    """
    torch._inductor.config.compile_threads = 1
    torch._dynamo.config.automatic_dynamic_shapes = False
    if gold := shutil.which("ld.gold"):
        folder = Path(tempfile.gettempdir(), "workbench-fuzz-linker")
        folder.mkdir(exist_ok=True)
        if not (folder / "ld").exists():
            (folder / "ld").symlink_to(gold)
        os.environ["COMPILER_PATH"] = str(folder)


def cpu_s() -> float:
    """Return the CPU seconds of this process and its finished child processes."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def full(path: Path, wanted: Mapping[str, int], sets: Mapping[str, int], begin: int) -> Counter[str]:
    """Run seeds until each mode has the wanted number of cases. Return the counts, summed over the modes.

    A JSON line for each mode and seed is appended to the file `path`. Seeds that the file already has are not run, but
    their counts are included.
    """
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    done = {(line["mode"], line["seed"]): line for line in lines}
    total: dict[str, Counter[str]] = {mode: Counter() for mode in MODES}
    for (mode, _), line in done.items():
        total[mode].update(line["counts"])
    with path.open("a") as out:
        seed = begin
        while any(total[mode]["cases"] < wanted[mode] for mode in wanted):
            for mode in wanted:
                if (mode, seed) in done or total[mode]["cases"] >= wanted[mode]:
                    continue
                counts: Counter[str] = Counter()
                begun_s = cpu_s()
                found = [each.to_json(program) for each, program in cases(mode, seed, sets[mode], counts)]
                counts["wrong"] = len(found)
                total[mode].update(counts)
                line = {"mode": mode, "seed": seed, "cpu_s": round(cpu_s() - begun_s, 3), "counts": counts}
                out.write(json.dumps({**line, "wrong": found}) + "\n")
                out.flush()
                for each in found:
                    print(f"{each['what']}\n{each['program']}\n{each['replay']}\n", flush=True)
            seed += 1
            if seed % 20 == 0:
                print(f"seed {seed}: {told(total)}", flush=True)
    return sum(total.values(), Counter())


def told(total: Mapping[str, Counter[str]]) -> str:
    return "; ".join(
        f"{mode} {counts['cases']} cases, {counts['wrong']} wrong" for mode, counts in total.items() if counts
    )


def replay(mode: str, seed: int, choices: Mapping[str, str]) -> str:
    """Print the program and the plan of a single case, and run it. Return the faults of its results (empty if none)."""
    with regions(compiled=mode == INDUCTOR, one_by_one=True):
        subject = Subject(mode, Known(drawn_program(mode, seed)))
        print(subject.known.program)
        print(subject.bench.plan_under(choices).text())
        return tried(subject, choices)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.levers.fuzz", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("fuzz.jsonl"), help="JSON lines of finished seeds")
    parser.add_argument("--torch", type=int, default=4500, help="number of cases with the torch executor")
    parser.add_argument("--regions", type=int, default=4500, help="number of cases with regions that run uncompiled")
    parser.add_argument("--inductor", type=int, default=1000, help="number of cases with regions compiled by Inductor")
    parser.add_argument("--replays", type=int, default=0, help="number of seeds whose configs `Config.jit` compiles")
    parser.add_argument("--begin", type=int, default=0, help="first seed")
    parser.add_argument("--replay", nargs=3, metavar=("MODE", "SEED", "CHOICES"), help="one case, choices as JSON")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    quick_compiler()
    if asked.replay:
        mode, seed, choices = asked.replay
        what = replay(mode, int(seed), json.loads(choices))
        print(what or "right")
        sys.exit(bool(what))
    begun = time.monotonic()
    wanted = {mode: getattr(asked, mode) for mode in MODES}
    total = full(asked.out, wanted, SETS, asked.begin)
    for seed in range(asked.begin, asked.begin + asked.replays):
        for found in replays(seed, SETS[TORCH], total):
            total["wrong"] += 1
            print(found)
    for what, count in sorted(total.items()):
        print(f"{count:7} {what}")
    print(f"{time.monotonic() - begun:.0f} s, {cpu_s():.0f} s of them on a core")
    sys.exit(bool(total["wrong"]))


if __name__ == "__main__":
    main()
