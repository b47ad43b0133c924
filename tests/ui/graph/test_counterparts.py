"""Sites of different layers have the same key if their ids differ only in the number of the layer."""

from __future__ import annotations

import pytest

from workbench.ui.graph.counterparts import counterpart_key, layers_named, number_of


@pytest.mark.parametrize(
    ("id", "key"),
    [
        ("saved:layers.0.mlp/silu", "saved:layers.*.mlp/silu"),
        ("saved:model.layers.17.self_attn/softmax#1", "saved:model.layers.*.self_attn/softmax#1"),
        ("saved:h.3/add", "saved:h.*/add"),
        ("remat:layers.1.mlp/silu>layers.1.mlp/mul", "remat:layers.*.mlp/silu>layers.*.mlp/mul"),
        ("saved:norm/rsqrt", ""),
        ("remat.weight", ""),
    ],
)
def test_the_key_has_a_star_in_place_of_the_number_of_the_layer(id: str, key: str) -> None:
    assert counterpart_key(id) == key


def test_a_longer_number_is_another_layer() -> None:
    assert counterpart_key("remat:layers.1/a>layers.11/a") == "remat:layers.*/a>layers.11/a"


def test_groups_of_layers_are_named_by_their_numbers() -> None:
    assert layers_named([number_of("saved:layers.7.mlp/silu")]) == "layer 7"
    assert layers_named([0, 2, 3, 4, 31]) == "layers 0, 2–4, 31"
