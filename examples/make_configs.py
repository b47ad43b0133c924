"""Make the three configs with which the examples train. The calls are the same as in a notebook.

``python examples/make_configs.py [FOLDER]``
"""

import sys
from pathlib import Path

from model import factory
from train_in_trainer import BATCH, llama, rows

import workbench as wb


def cheap(bench: wb.Workbench) -> dict[str, str]:
    """Return choices that recompute each saved storage where this is legal, except matrix products and attention."""
    costly = ("linear", "scaled_dot_product")
    return {
        site.id: "recompute"
        for site in bench.sites("saved")
        if site.bytes and "recompute" not in site.illegal and not any(word in site.id for word in costly)
    }


def main(folder: Path) -> None:
    """Write the configs into `folder`."""
    network, inputs = factory()
    alone = wb.open(network, *inputs)
    alone.choose(cheap(alone))
    alone.export(folder / "choices.py")
    print(alone)

    shared = wb.open(network, *inputs, ranks=2, parallel="fsdp")
    shared.choose({"waits.issue": "consumer", "waits.wait": "late", "waits.gradients": "earliest"})
    shared.export(folder / "choices_on_ranks.py")
    print(shared)

    batch = {name: rows(BATCH)[0][name].expand(BATCH, -1).contiguous() for name in ("input_ids", "labels")}
    trained = wb.open(llama(), **batch)
    trained.choose(cheap(trained))
    trained.export(folder / "choices_in_trainer.py")
    print(trained)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
