"""The scripts of `examples/` run as their README says. A config keeps their losses and lowers their memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import workbench as wb

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
STEPS = 4


def rows(*command: str) -> dict[str, list[float]]:
    """Run a script. Return the numbers in its output, by the name before them."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(
        [sys.executable, *command, "--steps", str(STEPS)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=800,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = {}
    for line in done.stdout.splitlines():
        words = line.replace(",", "").split()
        figures = [word for word in words if word.replace(".", "", 1).isdigit()]
        if figures:
            found[" ".join(words[: -len(figures)])] = [float(word) for word in figures]
    return found


@pytest.mark.long
def test_a_training_loop_with_a_config_has_the_same_losses_and_saves_fewer_bytes() -> None:
    found = rows(str(EXAMPLES / "train.py"))
    eager, stock, chosen = (
        found[name] for name in ("eager PyTorch", "Thunder without choices", "Thunder with the config")
    )
    assert chosen[1:] == stock[1:], "equal kernels give equal digits"
    assert chosen[1:] == pytest.approx(eager[1:], rel=1e-4)
    assert len(set(chosen[1:])) == STEPS, "it trains"
    assert chosen[0] < 0.8 * stock[0]


@pytest.mark.long
def test_two_ranks_have_the_losses_of_ddp_and_hold_half_of_the_parameters() -> None:
    launched = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    found = rows(*launched, str(EXAMPLES / "train_on_ranks.py"))
    whole, shards = found["DDP"], found["FSDP with the config"]
    assert shards[1:] == pytest.approx(whole[1:], rel=1e-4)
    assert len(set(shards[1:])) == STEPS
    assert shards[0] == pytest.approx(whole[0] / 2, rel=0.02)


@pytest.mark.long
def test_a_trainer_has_the_same_losses_with_and_without_a_config() -> None:
    found = rows(str(EXAMPLES / "train_in_trainer.py"))
    assert found["with the config"] == pytest.approx(found["as it is"], rel=1e-3)
    assert len(set(found["as it is"])) == STEPS


@pytest.mark.long
def test_plain_pytorch_has_the_same_losses_with_exported_files_and_saves_fewer_bytes() -> None:
    found = rows(str(EXAMPLES / "train_in_plain_pytorch.py"))
    ways = ("eager PyTorch", "eager PyTorch with choices", "torch.compile", "torch.compile with choices")
    eager, eager_chosen, stock, chosen = (found[f"{way}: losses"] for way in ways)
    assert eager_chosen == eager, "equal kernels give equal digits"
    assert chosen[1:] == pytest.approx(stock[1:], rel=1e-4)
    assert len(set(eager)) == STEPS, "it trains"
    assert chosen[0] < stock[0]


@pytest.mark.long
def test_the_configs_are_the_output_of_their_script(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "make_configs.py"), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=800,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    for made in sorted(tmp_path.glob("*.py")):
        fresh, kept = wb.load(made), wb.load(EXAMPLES / made.name)
        assert (fresh.choices, fresh.fingerprint) == (kept.choices, kept.fingerprint)
    assert len(list(tmp_path.glob("*.py"))) == 3


@pytest.mark.long
def test_a_trainer_with_torch_compile_has_the_same_losses_with_an_exported_file() -> None:
    found = rows(str(EXAMPLES / "train_plain_in_trainer.py"))
    stock, chosen = (found[f"{way}: losses"] for way in ("torch.compile", "torch.compile with choices"))
    assert chosen == pytest.approx(stock, rel=1e-3)
    assert len(set(stock)) == STEPS, "it trains"
