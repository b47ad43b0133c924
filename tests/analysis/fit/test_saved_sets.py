"""The sets of saved values have the least recompute time for a price of their bytes."""

import itertools
import random

import pytest

from workbench.analysis.fit.saved_sets import ForwardValue, cheapest_sets, from_saved


def values_of(seed: int, count: int = 9) -> list[ForwardValue]:
    draw = random.Random(seed)
    names = [f"v{at}" for at in range(count)]
    return [
        ForwardValue(
            name,
            bytes=draw.randint(1, 50),
            seconds=draw.choice([0.0, 1.0, draw.random()]),
            inputs=tuple(draw.sample(names[:at], min(at, draw.randint(0, 2)))),
            needed=draw.random() < 0.6,
            can_save=option != "recompute",
            can_recompute=option != "save",
        )
        for at, name in enumerate(names)
        for option in draw.choices(["", "save", "recompute"], [8, 2, 1])
    ]


def legal_sets(values: list[ForwardValue]) -> list[tuple[int, float]]:
    """Return bytes and seconds of every legal set."""
    found = []
    can = [value for value in values if value.can_save]
    for count in range(len(can) + 1):
        for chosen in itertools.combinations(can, count):
            made = from_saved(values, {value.name for value in chosen})
            of = {value.name: value for value in values}
            if all(of[name].can_recompute for name in made.recomputed):
                found.append((made.bytes, made.seconds))
    return found


@pytest.mark.parametrize("seed", range(40))
def test_no_legal_set_has_fewer_bytes_and_less_time(seed: int) -> None:
    values = values_of(seed)
    legal = legal_sets(values)
    sets = cheapest_sets(values, below_bytes=10**9)
    assert [one.seconds for one in sets] == sorted(one.seconds for one in sets)
    assert [one.bytes for one in sets] == sorted((one.bytes for one in sets), reverse=True)
    for one in sets:
        assert from_saved(values, one.saved) == one
        # A byte of an early value counts up to 10 % more than a byte of a late value, so allow 10 % of the bytes.
        assert not any(size * 1.1 < one.bytes and seconds < one.seconds - 1e-9 for size, seconds in legal)
    assert min(size for size, _ in legal) == sets[-1].bytes
    assert min(seconds for _, seconds in legal) == pytest.approx(sets[0].seconds)


def test_identical_layers_are_recomputed_one_by_one_the_first_layer_first() -> None:
    layers = [
        value
        for at in range(4)
        for value in (
            ForwardValue(f"in{at}", 10, 1.0, (f"in{at - 1}",) if at else (), needed=True),
            ForwardValue(f"big{at}", 100, 1.0, (f"in{at}",), needed=True),
        )
    ]
    sets = cheapest_sets(layers, below_bytes=440)
    assert [sorted(one.recomputed) for one in sets[:4]] == [
        [f"big{at}" for at in range(count + 1)] for count in range(4)
    ]


def test_sets_have_fewer_bytes_than_the_given_number() -> None:
    values = values_of(3)
    assert all(one.bytes < 60 for one in cheapest_sets(values, below_bytes=60))
