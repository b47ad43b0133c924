"""Benches on built-in programs with ranks, opened once: a planned GPU under nvFuser, and a CPU."""

import pytest

import workbench as wb


@pytest.fixture(scope="session")
def planned() -> wb.Workbench:
    return wb.open("fsdp_llama", device="planned", executor="nvfuser", ranks=8)


@pytest.fixture(scope="session")
def replicated() -> wb.Workbench:
    return wb.open("ddp_llama", device="cpu", executor="torch", ranks=4, settings={"layers": 1})
