"""The census counts the fusions and the unique fusions of a plan, and lists the groups of equal fusions."""

from workbench.analysis.graphs.fusion_census import census
from workbench.core.graph import BACKWARD, FORWARD


def test_identical_fusions_form_groups_in_order() -> None:
    counted = census(["a", "b", "a", "c", "b"], [FORWARD, FORWARD, FORWARD, BACKWARD, BACKWARD], [3, 1, 3, 7, 1])
    assert (counted.count, counted.unique, counted.largest) == (5, 3, 7)
    assert counted.groups == ((0, 2), (1, 4), (3,))


def test_a_structure_in_forward_and_backward_counts_in_both() -> None:
    counted = census(["a", "a"], [FORWARD, BACKWARD], [1, 1])
    assert (counted.unique, counted.forward_unique, counted.backward_unique) == (1, 1, 1)


def test_the_census_of_no_fusions_is_zero() -> None:
    counted = census([], [], [])
    assert (counted.count, counted.unique, counted.largest, counted.groups) == (0, 0, 0, ())
