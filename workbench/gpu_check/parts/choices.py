"""Part `choices` of the GPU check: run programs under random choices, and compare each run with unmodified Thunder."""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import TYPE_CHECKING, Any

import workbench
from workbench import programs
from workbench.compiler import api
from workbench.compiler.planner import kernel_identity
from workbench.errors import ChoiceError, PlanError, RunError
from workbench.gpu_check.parts import real_models, time_spent
from workbench.gpu_check.parts.check_part import WRONG, CheckStep, Conditions, Figures, Known
from workbench.runs.measure import accuracy, tensor_diff
from workbench.runs.measure.accuracy import Parts, Stepper
from workbench.runs.worker.worker import fusions_of

if TYPE_CHECKING:
    from workbench.bench import Workbench
    from workbench.core.lever import Site
    from workbench.runs.measure.tensor_diff import RecordedTensor

SEED = 3
SETS, SETS_REHEARSED = 300, 4
FIRST = 9
"""Number of sets of choices among the first steps of the check; see `CheckStep.first`."""
_SETTINGS: dict[str, dict[str, str]] = {
    "residual_chain": {"grad": "true"},
    "llama": {"layers": "1"},
    "mlp": {"layers": "1"},
}
_REHEARSED = ("mlp",)
_NOT_HELD = ("checkpoint_dropout", "lost_update", "swap", "return_source", "two_destinations")
"""Programs for which unmodified Thunder gives wrong results, and therefore cannot be the reference."""
_REAL = ("gpt2", "resnet18")
"""Factories of `workbench.gpu_check.parts.real_models`."""
_MOST_AT_ONCE = 6
_RANDOM_SHARE = 3
"""Every third set of choices is for a random program."""


def steps(conditions: Conditions) -> Iterator[CheckStep]:
    """Yield a step for each set of choices, then a step that sums up the results.

    Every third set is for a random program, if `random_programs` finds the generator. The other sets are for built-in
    programs and real models. Several successive sets are for the same program.
    """
    count = conditions.size(SETS, SETS_REHEARSED)
    named = _REHEARSED if conditions.rehearse else (*_built_in_names(), *(real_models.named(each) for each in _REAL))
    drawn = random_programs()
    for i in range(count):
        if drawn is not None and i % _RANDOM_SHARE == _RANDOM_SHARE - 1:
            # Each random program is used with two sets of choices.
            subject = functools.partial(_random_subject, conditions, i // (2 * _RANDOM_SHARE))
            name = f"random program {i // (2 * _RANDOM_SHARE)}"
        else:
            program = named[i // 4 % len(named)]
            subject, name = functools.partial(_built_in_subject, conditions, program), program.rpartition(":")[2]
        yield CheckStep(f"{i} {name}", functools.partial(_run_choices, subject, i), first=i < FIRST)
    yield CheckStep("all", lambda known: _sum(known, drawn is not None))


def _built_in_names() -> Iterator[str]:
    for info in programs.describe():
        if not programs.parallel_of(info.name) and info.name not in _NOT_HELD:
            yield info.name


def random_programs() -> Any:
    """Return the module `tests.strategies`, which generates random programs; None if the tests are not installed."""
    with contextlib.suppress(ImportError):
        return importlib.import_module("tests.strategies")
    return None


class Unusable(Exception):
    """The program cannot be compared, because unmodified Thunder or the workbench refuses it."""


class Subject:
    """A bench, and the results of unmodified Thunder for its program.

    Parameters
    ----------
    bench : Workbench
    build : callable
        Builds a new copy of the program on the bench's device.
    """

    def __init__(self, bench: Workbench, build: Callable[[], Parts]) -> None:
        self.bench, self.build = bench, build
        self._fusions = fusions_of(bench.plan.device)
        try:
            with self._fusions.shared():
                function, args, kwargs = build()
                jitted = api.unmodified(function)
                self.expected = accuracy.first_step(Stepper(function, args, kwargs, jitted, seed=SEED), SEED)
                again, args, kwargs = build()
                other = accuracy.first_step(Stepper(again, args, kwargs, api.unmodified(again), seed=SEED), SEED)
        except Exception as error:
            raise Unusable(f"unmodified Thunder refuses it: {type(error).__name__}: {error}") from error
        self.kernels = set(kernel_identity.kernels_of(jitted))
        self.unsteady = tensor_diff.tensors_with_other_bits(other, self.expected)

    def run(self) -> tuple[dict[str, RecordedTensor], tuple[str, ...]]:
        """Run under the bench's config; return the results, and the kernels that unmodified Thunder does not run."""
        function, args, kwargs = self.build()
        jitted = self.bench.config.jit(function)
        with self._fusions.shared():
            recorded = accuracy.first_step(Stepper(function, args, kwargs, jitted, seed=SEED), SEED)
        changed = [name for key, name in kernel_identity.kernels_of(jitted).items() if key not in self.kernels]
        return recorded, tuple(changed)


@functools.lru_cache(maxsize=2)
def _built_in_subject(conditions: Conditions, name: str) -> Subject:
    with time_spent.timed(time_spent.OPENING):
        bench = workbench.open(
            name, device=conditions.device, executor=conditions.executor, settings=_SETTINGS.get(name, {}),
            capture="dynamo" if real_models.is_named(name) else "interpreter",
        )  # fmt: skip
    return Subject(bench, bench.program.build)


@functools.lru_cache(maxsize=2)
def _random_subject(conditions: Conditions, number: int) -> Subject:
    drawn = random_programs().drawn(Random(f"gpu {number}"), draws=False, writes=number % 2 == 0, most_lines=8)
    function, args, kwargs = drawn.build()
    try:
        with time_spent.timed(time_spent.OPENING):
            bench = workbench.open(
                function, *args, device=conditions.device, executor=conditions.executor, capture="interpreter", **kwargs
            )
    except workbench.WorkbenchError as error:
        raise Unusable(str(error)) from error

    def build() -> Parts:
        from workbench.programs import resolve

        function, args, kwargs = drawn.build()
        return resolve(function, *args, device=conditions.device, **kwargs).build(conditions.device)

    return Subject(bench, build)


def _run_choices(subject: Callable[[], Subject], seed: int, _: Known) -> Figures:
    try:
        found = subject()
    except Unusable as reason:
        return {"choices": 0, "refused": str(reason), "bitwise": None, "changed": 0}
    bench = found.bench
    while bench.choices:
        bench.undo()
    refused = _choose_randomly(bench, Random(f"choices {seed}"))
    recorded, changed = found.run()
    exactly = not changed
    errors = [
        error
        for error in tensor_diff.compare_tensors(
            recorded, found.expected, accuracy.THUNDER, exact=exactly, unsteady=found.unsteady
        )
        if not error.ok
    ]
    other = tensor_diff.tensors_with_other_bits(recorded, found.expected)
    wrong = ", ".join(f"{error.name} differs by {error.max_abs_error:.3g}" for error in errors[:3])
    return {
        "choices": len(bench.choices),
        "refused": refused,
        "bitwise": not other,
        "changed": len(changed),
        **({WRONG: f"{wrong}, under {bench.choices}"} if wrong else {}),
    }


def _choose_randomly(bench: Workbench, random: Random) -> str:
    """Make a random number of legal choices at random sites. Return the ids of the sites whose choices were refused."""
    sites = [site for site in bench.sites() if _options(site)]
    if not sites:
        return ""
    count = random.randint(1, min(_MOST_AT_ONCE, len(sites)))
    wanted = {site.id: random.choice(_options(site)) for site in random.sample(sites, count)}
    refused: Sequence[str] = []
    while wanted:
        try:
            bench.choose(wanted)
            break
        except ChoiceError as error:
            # The choice is legal alone, but not together with the other choices.
            refused = [*refused, error.site]
            if error.site not in wanted:
                break
            del wanted[error.site]
        except PlanError as error:
            raise RunError(f"offered options were refused in combination: {error}") from error
    return ", ".join(refused)


def _options(site: Site) -> list[str]:
    return [option for option in site.options if option not in site.illegal and option != site.choice]


def _sum(results: Known, with_random: bool) -> Figures:
    sets = [figures for step, figures in results.items() if step != "all" and figures.get("bitwise") is not None]
    return {
        "sets": len(sets),
        "right": sum(not figures.get(WRONG) for figures in sets),
        "bitwise": sum(figures["bitwise"] for figures in sets),
        "with changed kernels": sum(figures["changed"] > 0 for figures in sets),
        "random programs": "yes" if with_random else "no: the tests are not installed; use a checkout",
    }
