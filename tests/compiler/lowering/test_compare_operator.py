"""The command that compares an operator with eager PyTorch for several data types and special values."""

import pytest
import torch

from tests.compare_operator import compare, difference


@pytest.mark.slow
def test_a_decomposed_operator_equals_eager_and_a_data_type_that_eager_refuses_is_named() -> None:
    lines = dict(line.split(": ", 1) for line in compare("torch.logaddexp(x, y)"))
    assert lines["torch.float64"].startswith("value equal; gradient of x ")
    assert "one side only" not in "".join(lines.values())
    assert lines["torch.int64"].startswith("eager PyTorch refuses it")


def test_a_difference_names_shares_of_the_largest_element_and_elements_on_one_side_only() -> None:
    eager = torch.tensor([1.0, 4.0, float("nan"), float("inf")])
    assert difference(eager, eager) == "equal"
    assert difference(torch.tensor([2.0, 4.0, float("nan"), float("inf")]), eager) == "2.5e-01"
    assert (
        difference(torch.tensor([1.0, 4.0, 0.0, -float("inf")]), eager) == "equal, 2 NaN or infinite on one side only"
    )
    assert difference(None, eager) == "missing on one side"
    assert "instead of" in difference(eager.double(), eager)
