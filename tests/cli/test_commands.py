"""`thunder-workbench` prints tables or JSON, reports an error in one line, and returns the right exit status."""

import contextlib
import importlib.metadata
import importlib.util
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.needs import needs_nvfuser
from workbench import Config, __version__, cli, doctor, load
from workbench.cli import entry
from workbench.errors import RunError
from workbench.interop.private_api import TORCH_VERSIONS
from workbench.util.cuda_driver import Gpu, attached_gpus
from workbench.util.disk_cache import REFERENCES

FILE = """
import torch

print("loading")

def good(size: int = 3):
    print("building")
    return torch.sin, (torch.ones(size, requires_grad=True),)

def untraceable():
    def f(x):
        return x * 2 if x.sum() > 0 else x
    return f, (torch.ones(3),)

def raises():
    raise RuntimeError("no luck")

def exits():
    raise SystemExit(0)

class Odd(BaseException):
    def __str__(self):
        raise RuntimeError

def raises_odd():
    raise Odd

def exits_when_traced():
    def f(x):
        raise SystemExit(x)
    return f, (torch.ones(3),)

def interrupted():
    raise KeyboardInterrupt

def goes_away():
    import os
    os.chdir("/")
    return good()
"""

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Return a function that runs a command line in an empty folder, and returns exit status, output and errors."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str, str]:
        capfd.readouterr()
        with pytest.raises(SystemExit) as stop:
            cli.main(arguments)
        out, err = capfd.readouterr()
        return int(stop.value.code or 0), out, err

    return run


def test_help_names_the_commands(call: Call) -> None:
    status, out, _ = call("--help")
    assert status == 0
    for command in ("doctor", "programs", "plan", "run", "lab"):
        assert command in out
    assert call()[0] == 2


def test_doctor_reports_the_environment(call: Call) -> None:
    status, out, _ = call("doctor")
    assert status == 0
    for name in (
        "Workbench",
        "Python",
        "PyTorch",
        "Thunder",
        "nvFuser",
        "CUDA devices",
        "CPU cores",
        "Memory",
        "Chromium",
        "JupyterLab",
    ):
        assert name in out
    status, out, _ = call("doctor", "--json")
    document = json.loads(out)
    assert (status, document["ok"]) == (0, True)
    assert {"name", "ok", "found", "note", "essential"} == document["checks"][0].keys()


@pytest.mark.slow
def test_doctor_can_be_run_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "workbench.doctor", "--json"], capture_output=True, text=True, check=False
    )
    assert json.loads(done.stdout)["checks"][0]["name"] == "Workbench", done.stderr


@pytest.mark.parametrize(("required", "note"), [("==9.9.9", "9.9.9"), (">=9,<9.5", ">=9,<9.5")])
def test_doctor_fails_if_an_essential_part_has_another_version(
    call: Call, monkeypatch: pytest.MonkeyPatch, required: str, note: str
) -> None:
    monkeypatch.setattr("workbench.doctor.required_versions", lambda: {"lightning-thunder": required})
    status, out, _ = call("doctor", "--json")
    thunder = next(check for check in json.loads(out)["checks"] if check["name"] == "Thunder")
    assert (status, thunder["ok"], thunder["note"]) == (1, False, f"the workbench is made for {note}")


@pytest.mark.slow
def test_doctor_of_a_folder_that_is_not_installed_knows_the_versions_of_pytorch(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def not_installed(name: str) -> list[str]:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "requires", not_installed)
    monkeypatch.setattr(doctor, "_version", lambda package: "2.15.0" if package == "torch" else "")
    status, out, _ = call("doctor", "--json")
    check = next(check for check in json.loads(out)["checks"] if check["name"] == "PyTorch")
    assert (status, check["ok"]) == (1, False)
    assert check["note"] == f"the workbench is made for {TORCH_VERSIONS}"


@pytest.mark.parametrize(
    ("direct_url", "note"),
    [
        (None, ""),
        ('{"url": "file:///x.whl", "archive_info": {}}', ""),
        ('{"url": "file:///x", "dir_info": {"editable": true}}', "a checkout, with the version that it had"),
    ],
)
def test_doctor_names_the_version_of_the_workbench(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, direct_url: str | None, note: str
) -> None:
    folder = tmp_path / "thunder_workbench-0.1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Name: thunder-workbench\nVersion: 0.1.0\n")
    if direct_url is not None:
        (folder / "direct_url.json").write_text(direct_url)
    monkeypatch.syspath_prepend(tmp_path)
    check = doctor.examine()[0]
    assert (check.name, check.ok, check.found) == ("Workbench", True, __version__)
    assert check.note.startswith(note)
    assert bool(check.note) == bool(note)


@pytest.mark.parametrize("fails", [False, True])
def test_doctor_reports_whether_an_nvfuser_for_another_pytorch_loads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    for name, version in (("nvfuser_cu130_torch210", "0.2.36"), ("torch", "2.11.0")):
        (tmp_path / f"{name}-{version}.dist-info").mkdir()
        (tmp_path / f"{name}-{version}.dist-info" / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
    (tmp_path / "torch.py").touch()
    (tmp_path / "nvfuser_direct.py").write_text("raise ImportError('undefined symbol: _ZN3c10')" if fails else "")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(doctor, "why_no_nvfuser", lambda: "")
    check = next(check for check in doctor.examine() if check.name == "nvFuser")
    assert check.ok is not fails
    assert check.found == "nvfuser_cu130_torch210 0.2.36"
    loads = ": ImportError: undefined symbol: _ZN3c10; everything except its fusions works without it"
    assert (
        check.note
        == f"built for PyTorch 2.10; the installed PyTorch is 2.11{loads if fails else '; it loads nevertheless'}"
    )


def test_doctor_reports_why_nvfuser_is_missing(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "why_no_nvfuser", lambda: "nvFuser has wheels for Linux x86-64 only")
    status, out, _ = call("doctor")
    assert status == 0
    assert re.search(
        r"–  nvFuser .* nvFuser has wheels for Linux x86-64 only; everything except its fusions works", out
    )


@pytest.mark.parametrize(
    ("driver", "built", "ok", "note"),
    [
        ((12, 2), (12, 8), True, ""),
        ((11, 8), (12, 8), False, "the driver supports CUDA up to 11.8; PyTorch is built with 12.8"),
        ((12, 8), (), False, "is built without CUDA"),
    ],
)
def test_doctor_asks_the_driver_for_gpus(
    driver: tuple[int, int], built: tuple[int, ...], ok: bool, note: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "attached_gpus", lambda: (Gpu("H200", 139 << 30, driver),))
    monkeypatch.setattr(doctor, "_cuda_of_torch", lambda: built)
    check = doctor._cuda()
    assert (check.ok, check.found) == (ok, "H200 (139 GiB)")
    assert note in check.note
    assert bool(note) == bool(check.note)


def test_the_driver_finds_the_gpus_that_pytorch_finds() -> None:
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    properties = [torch.cuda.get_device_properties(at) for at in range(count)]
    assert [(gpu.name, gpu.memory_bytes) for gpu in attached_gpus()] == [
        (one.name, one.total_memory) for one in properties
    ]
    built = doctor._cuda_of_torch()
    assert ".".join(map(str, built)) == (torch.version.cuda or "")


def test_doctor_names_a_notebook_kernel_that_leaves_messages_unread(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = doctor._version
    monkeypatch.setattr(doctor, "_version", lambda package: "7.3.0" if package == "ipykernel" else version(package))
    status, out, _ = call("doctor", "--json")
    kernel = next(check for check in json.loads(out)["checks"] if check["name"] == "ipykernel")
    assert (status, kernel["ok"], kernel["found"]) == (0, False, "7.3.0")
    assert kernel["note"].startswith("before 7.4 a cell or a click may wait")


def test_programs_are_listed_with_their_settings(call: Call) -> None:
    status, out, _ = call("programs")
    assert status == 0
    assert re.search(r"^residual_chain .* layers=8 size=10 grad=False", out, re.MULTILINE)
    document = json.loads(call("programs", "--json")[1])
    chain = next(program for program in document["programs"] if program["name"] == "residual_chain")
    assert chain["settings"][0] == {"name": "layers", "type": "int", "default": 8, "options": [], "required": False}


def test_plan_prints_a_table(call: Call) -> None:
    status, out, err = call("plan", "mlp", "--set", "layers=1", "--device", "cpu", "--sites", "saved")
    assert (status, err) == (0, "")
    for part in ("predicted", "peak memory", "KiB", "cpu, torch", "saved:blocks.0", "save recompute", "mlp.py:"):
        assert part in out


IN_PARTS = """
import torch

def broken():
    def f(x):
        x = x.tanh()
        print("half way")
        return x.sin()
    return f, (torch.ones(3, requires_grad=True),)
"""


@pytest.mark.slow
def test_plan_prints_a_program_in_parts(call: Call) -> None:
    Path("broken.py").write_text(IN_PARTS)
    chosen = ("--choose", "part2:saved.inputs=cut")
    status, out, _ = call("plan", "broken.py:broken", "--device", "cpu", *chosen, "--export", "choices.py")
    assert status == 0
    for told in ("part1  broken.py:6", "part2  broken.py:8", "the graph is cut after part1 at", '(print("half way"))'):
        assert told in out
    assert load("choices.py").choices == {"part2:saved.inputs": "cut"}
    status, out, _ = call("plan", "broken.py:broken", "--config", "choices.py", "--json")
    document = json.loads(out)
    assert (status, [part["name"] for part in document["parts"]]) == (0, ["part1", "part2"])
    assert [part["proven"] for part in document["parts"]] == [True, True]
    assert {"part2:saved.inputs": "cut"}.items() <= {site["id"]: site["choice"] for site in document["sites"]}.items()
    status, _, err = call("plan", "broken.py:broken", "--device", "cpu", "--save", "x.plan.json")
    assert (status, "--save needs a program with one plan;" in err) == (2, True)


def test_plan_prints_json(call: Call) -> None:
    status, out, _ = call("plan", "mlp", "--set", "layers=1", "--device", "cpu", "--json")
    document = json.loads(out)
    assert status == 0
    assert document["predicted"] is True
    assert document["peak_bytes"] > document["saved_bytes"] > 0
    assert {"count", "unique", "largest", "forward_unique", "backward_unique"} <= document["fusions"].keys()
    assert {"id", "lever", "label", "source", "options", "choice", "illegal", "effect"} <= document["sites"][0].keys()
    saved = [site for site in document["sites"] if site["lever"] == "saved"]
    only = json.loads(call("plan", "mlp", "--set", "layers=1", "--device", "cpu", "--sites", "saved", "--json")[1])
    assert only["sites"] == saved


@pytest.mark.slow
def test_choices_are_exported_and_replayed(call: Call, tmp_path: Path) -> None:
    arguments = ("plan", "residual_chain", "--device", "cpu")
    sites = json.loads(call(*arguments, "--set", "grad=true", "--json")[1])["sites"]
    site = next(s["id"] for s in sites if s["lever"] == "saved" and "recompute" in s["options"] and not s["illegal"])
    chosen = (
        "--set",
        "grad=true",
        "--choose",
        f"{site}=recompute",
        "--export",
        "c.py",
        "--save",
        "c.plan.json",
        "--json",
    )
    before = json.loads(call(*arguments, *chosen)[1])
    assert (before["exported"], before["saved"]) == ("c.py", "c.plan.json")
    saved = json.loads((tmp_path / "c.plan.json").read_text())
    assert (saved["choices"], saved["figures"]["peak_bytes"]) == ({site: "recompute"}, before["peak_bytes"])
    config = load(tmp_path / "c.py")
    assert (config.choices, config.settings) == ({site: "recompute"}, {"grad": True})
    after = json.loads(call("plan", "residual_chain", "--config", "c.py", "--json")[1])
    assert after["peak_bytes"] == before["peak_bytes"]
    assert next(s["choice"] for s in after["sites"] if s["id"] == site) == "recompute"


def test_choices_that_do_not_fit_give_a_warning_in_one_line(call: Call, tmp_path: Path) -> None:
    Config(program="swap", executor="torch", device="cpu", choices={"saved:no": "save"}).write(tmp_path / "c.py")
    status, _, err = call("plan", "swap", "--config", "c.py")
    assert status == 0
    assert err.startswith("thunder-workbench: warning: 1 of 1 choices do not fit")
    assert err.count("\n") == 1


def test_a_config_for_other_versions_and_another_program_gives_a_warning(call: Call, tmp_path: Path) -> None:
    other = Config(
        program="swap", executor="torch", device="cpu", fingerprint="9f2c", versions={"torch": "1.0", "gone\x1b": "2"}
    )
    other.write(tmp_path / "c.py")
    message = (
        r"the config for 'swap' was made for a program with other statements; "
        r"made with gone\\x1b 2, here not installed; made with torch 1.0, here 2\.\d+\.\d+\S*: "
        r"its choices may have another effect here"
    )
    status, _, err = call("plan", "swap", "--config", "c.py")
    assert status == 0
    assert re.fullmatch(f"thunder-workbench: warning: {message}\n", err)
    status, out, _ = call("plan", "swap", "--config", "c.py", "--json")
    assert status == 0
    assert [each for each in json.loads(out)["warnings"] if re.fullmatch(message, each)]


def test_output_of_a_program_does_not_enter_the_json(call: Call, tmp_path: Path) -> None:
    (tmp_path / "f.py").write_text(FILE)
    status, out, err = call("plan", "f.py:good", "--device", "cpu", "--set", "size=5", "--json")
    assert status == 0
    assert json.loads(out)["program"]
    assert err.count("loading") == 1
    assert "building" in err


BAD_USAGE: list[tuple[list[str], str]] = [
    (["plan", "mpl"], "there is no program 'mpl'"),
    (
        ["plan", "mlp", "--set", "layer=1"],
        "mlp has no setting 'layer'; legal: layers, width, hidden, batch; did you mean layers?",
    ),
    (["plan", "mlp", "--set", "device=cuda"], "mlp has no setting 'device'"),
    (["plan", "mlp", "--set", "layers"], "--set layers: the form is --set NAME=VALUE"),
    (["plan", "mlp", "--set", "layers=1", "--set", "layers=2"], "--set layers=2: layers is given twice"),
    (
        ["plan", "swap", "--choose", "remat.preset=every=x"],
        "remat.preset: 'every=x' is not an option here; legal: stock",
    ),
    (["plan", "swap", "--choose", "saved:a=b=c"], "swap has no site 'saved:a=b'; did you mean "),
    (["plan", "swap", "--choose", "a.b=c=d"], "swap has no site 'a.b'"),
    (["plan", "swap", "--device", "cuda"], "no CUDA device is attached; use --device planned to plan for one"),
    (["plan", "mlp", "--ranks", "2"], "mlp does not say how 2 ranks share it; give --parallel one of fsdp"),
    (["plan", "x" * 5000], "there is no program 'xxxxxxxx"),
    (["plan", "x" * 5000 + ".py:f"], "file name too long"),
    (["plan", "loop.py:f"], "too many levels of symbolic links"),
    (["plan", "~no such user/a.py:f"], "~ names a user that this machine does not have"),
    (["plan", "pipe.py:f"], "it is a pipe (FIFO), not a regular file"),
    (["plan", "\udcff\x1b[31m"], r"there is no program '\udcff\x1b[31m'; built in: "),
    (["plan", "swap", "--set", "\udcff=\x1b"], r"swap has no setting '\udcff'"),
    (["plan", "swap", "--sites", "\x9b"], r"--sites \x9b: unknown lever"),
    (["plan", "swap", "--config", ""], "cannot read the config .: no file name is given"),
    (["plan", "swap", "--config", "pipe.py"], "cannot read the config pipe.py: it is a pipe (FIFO)"),
    (["plan", "swap", "--config", "~no such user"], "~ names a user that this machine does not have"),
    (["plan", "swap", "--config", "\x1b[31m\udcff"], r"cannot read the config \x1b[31m\udcff: no such file"),
    (["plan", "swap", "--export", ""], "cannot write .: no file name is given"),
    (["plan", "swap", "--export", "loop.py"], "cannot write loop.py: too many levels of symbolic links"),
    (["plan", "swap", "--export", "pipe.py"], "cannot write pipe.py: it is a pipe (FIFO), not a regular file"),
    (["plan", "swap", "--export", "code.py"], "the file exists and is not a config; nothing was written, and the"),
    (["plan", "swap", "--export", "code.py"], "; give another name, or --force to replace it"),
    (["plan", "swap", "--export", "x" * 5000], "file name too long"),
    (["plan", "f.py:exits"], "the factory of f.py:exits failed at f.py:19 (raise SystemExit(0)): SystemExit: 0"),
    (["plan", "f.py:raises_odd"], "f.py:26 (raise Odd): Odd: (its text cannot be read: RuntimeError)"),
    (["plan", "f.py:exits_when_traced"], ": SystemExit: "),
    (["plan", "swap", "--choose", "nothing"], "--choose nothing: the form is --choose ID=OPTION"),
    (["plan", "swap", "--choose", "saved:x=y"], "swap has no site 'saved:x'"),
    (["plan", "swap", "--sites", "save"], "--sites save: unknown lever; legal: "),
    (["plan", "swap", "--config", "gone.py"], "cannot read the config gone.py: no such file or directory"),
    (["plan", "swap", "--config", "code.py"], "code.py:1: contains code, which was not executed: `exit(5)`"),
    (
        ["plan", "swap", "--save", "code.py"],
        "the file exists and is not a saved plan; nothing was written; give another",
    ),
    (["plan", "swap", "--save", "code.py"], "name, or --force to replace it"),
    (["plan", "swap", "--export", "gone/c.py"], "cannot write gone/c.py: no such file or directory"),
    (["plan", "gone.py:f"], "there is no such file"),
    (
        ["plan", "f.py:raises"],
        'the factory of f.py:raises failed at f.py:16 (raise RuntimeError("no luck")): RuntimeError',
    ),
    (["plan", "f.py:untraceable", "--device", "planned"], "values decide which code runs: choose with torch.where"),
    (["run", "swap", "--device", "planned"], "swap is planned for a GPU that is not attached"),
    (["run", "swap", "--device", "planned", "--submit", "2"], "swap is planned for a GPU that is not attached"),
    (["run", "swap", "--submit", "2", "--trace", "t.json"], "--trace reads a run that has ended: with --submit"),
    (["plan", "swap", "--device", "cpu", "--executor", "nvfuser"], "nvFuser fuses CUDA tensors only"),
    (["plan", "swap", "--device", "tpu"], "'tpu' is not one of 'cpu', 'cuda', 'planned'"),
    (["run", "swap", "--against", "stok"], "--against stok: legal: stock, thunder, a config file (.py), or"),
    (["run", "swap", "--against", "saved:x=y"], "saved:x=y: swap has no site 'saved:x'"),
    (["run", "swap", "--against", "gone.py"], "cannot read the config gone.py: no such file or directory"),
    (
        ["run", "swap", "--device", "cpu", "--samples", "0"],
        "'--samples': Input should be greater than or equal to 1",
    ),
    (["sweep", "mpl", "--set", "layers=1"], "there is no program 'mpl'"),
    (["sweep", "mlp", "--set", "layer=1,2"], "mlp has no setting 'layer'; legal: layers, width, hidden, batch"),
    (["sweep", "mlp", "--set", "layers=1,x"], "mlp: layers must be a whole number, given 'x'"),
    (["sweep", "mlp", "--set", "layers="], "--set layers=: no value is given"),
    (["sweep", "gone.py:f", "--set", "n=1"], "there is no such file"),
    (["compare", "no such", "run"], "there is no run 'no such' in "),
    (["plan"], "Missing argument"),
    (["plna"], "No such command 'plna'"),
    (["doctor", "--jsn"], "No such option"),
]


def test_a_double_dash_alone_is_not_a_command(call: Call) -> None:
    assert call("--") == (2, "", "thunder-workbench: Missing command.\n")


@pytest.mark.parametrize(("arguments", "message"), BAD_USAGE, ids=[" ".join(each)[:40] for each, _ in BAD_USAGE])
def test_bad_usage_gives_one_line_or_one_document(
    arguments: list[str], message: str, call: Call, tmp_path: Path
) -> None:
    (tmp_path / "f.py").write_text(FILE)
    (tmp_path / "code.py").write_text("exit(5)")
    (tmp_path / "loop.py").symlink_to("loop.py")
    os.mkfifo(tmp_path / "pipe.py")
    status, out, err = call(*arguments)
    assert status == 2
    last = err.splitlines()[-1]
    assert last.startswith("thunder-workbench: ")
    assert message in last
    assert "Traceback" not in out + err
    status, out, err = call(*arguments, "--json")
    document = json.loads(out)
    assert (status, document["ok"]) == (2, False)
    assert message in document["error"]


@needs_nvfuser
def test_a_setting_on_the_command_line_may_contain_an_equals_sign(call: Call) -> None:
    chosen = ("--choose", "remat.preset=every=4", "--device", "planned", "--executor", "nvfuser", "--export", "c.py")
    assert call("plan", "residual_chain", *chosen)[0] == 0
    assert load("c.py").choices == {"remat.preset": "every=4"}


def test_force_exports_over_a_file_that_is_not_a_config(call: Call, tmp_path: Path) -> None:
    (tmp_path / "c.py").write_text("print('mine')")
    assert call("plan", "swap", "--device", "cpu", "--export", "c.py", "--force")[0] == 0
    assert load("c.py").program == "swap"


def test_file_names_are_relative_to_the_folder_of_the_command(call: Call, tmp_path: Path) -> None:
    (tmp_path / "f.py").write_text(FILE)
    assert call("plan", "f.py:goes_away", "--device", "cpu", "--export", "c.py")[0] == 0
    assert load(tmp_path / "c.py").program == "f.py:goes_away"


def test_a_file_name_that_is_not_text_is_accepted(call: Call, tmp_path: Path) -> None:
    name = os.fsdecode(b"\xff.py")
    (tmp_path / name).write_text(FILE)
    status, out, err = call("plan", f"{name}:good", "--device", "cpu")
    assert status == 0, err
    assert r"\udcff.py:good" in out
    status, out, _ = call("plan", f"{name}:good", "--device", "cpu", "--json")
    assert json.loads(out)["program"] == f"{name}:good"
    assert out.isascii() or out.replace("\n", "").isprintable()


def test_an_interrupt_is_reported(call: Call, tmp_path: Path) -> None:
    (tmp_path / "f.py").write_text(FILE)
    status, out, err = call("plan", "f.py:interrupted", "--device", "cpu")
    assert (status, err.splitlines()[-1]) == (130, "thunder-workbench: interrupted")
    status, out, _ = call("plan", "f.py:interrupted", "--device", "cpu", "--json")
    assert (status, json.loads(out)) == (130, {"ok": False, "error": "interrupted"})


@pytest.mark.slow
@pytest.mark.long
def test_a_run_against_another_variant_writes_a_trace_and_a_snapshot(call: Call, tmp_path: Path) -> None:
    records = ("--trace", "trace.json", "--memory-snapshot", "memory.pickle")
    status, out, err = call("run", "swap", "--device", "cpu", "--samples", "3", "--against", "stock", *records)
    assert status == 0, err
    assert re.search(r"against stock +\S+ ms, \S+ of this run's time \(\S+ to \S+\), interleaved: ", out)
    assert re.search(r"largest at the peak, predicted +\S+ 256 B", out)
    assert re.search(r"bits +every bit equals unmodified Thunder's result", out)
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert (tmp_path / "memory.pickle").stat().st_size > 0


class FailingRun:
    """A stand-in for a failed run."""

    state = "failed"
    warnings = ()

    def observe(self, _: object) -> None:
        pass

    def wait(self) -> None:
        pass

    def cancel(self) -> None:
        self.state = "cancelled"

    def to_json(self) -> dict[str, Any]:
        nothing = dict.fromkeys(("compile_s", "step_s", "memory", "accuracy", "run_dir"))
        return {"ok": False, "error": "the worker was killed", **nothing}


def test_a_failed_run_exits_with_status_1_and_reports_the_failure(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.bench.Workbench.run", lambda *_, **__: FailingRun())
    status, out, err = call("run", "swap", "--device", "cpu")
    assert status == 1
    assert err.splitlines()[-1] == "thunder-workbench: the run failed: the worker was killed"
    status, out, _ = call("run", "swap", "--device", "cpu", "--json")
    assert (status, json.loads(out)["error"]) == (1, "the worker was killed")


def test_a_run_that_cannot_start_exits_with_status_1(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RunError("no space left on device")

    monkeypatch.setattr("workbench.bench.Workbench.run", refuse)
    assert call("run", "swap", "--device", "cpu")[0] == 1


def test_an_interrupted_sweep_reports_how_to_resume(
    call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("workbench.runs.sweep.sweep.run", interrupt)
    status, _, err = call("sweep", "mlp", "--device", "cpu", "--out", str(tmp_path / "a sweep"))
    told = (
        "thunder-workbench: interrupted: to run the remaining combinations, "
        f"repeat the command with --out '{tmp_path}/a sweep'"
    )
    assert (status, err.splitlines()[-1]) == (130, told)


def test_an_interrupted_run_is_cancelled(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    run = FailingRun()

    def interrupt() -> None:
        raise KeyboardInterrupt

    run.wait = interrupt  # type: ignore[method-assign]
    monkeypatch.setattr("workbench.bench.Workbench.run", lambda *_, **__: run)
    assert call("run", "swap", "--device", "cpu")[0] == 130
    assert run.state == "cancelled"


def test_lab_opens_a_copy_of_the_quickstart_and_keeps_the_users_own_copy(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []

    class Server(contextlib.nullcontext):  # type: ignore[type-arg]
        def __init__(self, command: list[str]) -> None:
            super().__init__(self)
            commands.append(command)

        def wait(self) -> int:
            return 0

    monkeypatch.setattr(subprocess, "Popen", Server)
    assert call("lab", "--no-browser", "--port=9999")[0] == 0
    notebook = tmp_path / "quickstart.ipynb"
    assert json.loads(notebook.read_text())["nbformat"] == 4
    assert commands[0][:4] == [sys.executable, "-m", "jupyterlab", "quickstart.ipynb"]
    assert commands[0][-2:] == ["--no-browser", "--port=9999"]
    assert "--LabApp.default_url=/lab/tree/quickstart.ipynb" in commands[0]
    notebook.write_text("mine")
    call("lab")
    assert notebook.read_text() == "mine"


FAKE_JUPYTERLAB = """
import pathlib, signal, sys
def end(*_):
    pathlib.Path("ended").touch()
    sys.exit(3)
signal.signal(signal.SIGTERM, end)
pathlib.Path("started").touch()
signal.sigtimedwait([signal.SIGUSR1], 60)
"""


@pytest.mark.slow
def test_a_signal_that_ends_lab_also_ends_jupyterlab(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (tmp_path / "jupyterlab.py").write_text(FAKE_JUPYTERLAB)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(Path(cli.__file__).parents[2])])}
    command = [sys.executable, "-m", "workbench.cli", "lab"]
    with subprocess.Popen(command, cwd=folder, env=environment) as process:
        while not (folder / "started").exists():
            time.sleep(0.05)
        process.terminate()
    assert process.returncode == 3
    assert (folder / "ended").exists()


def test_lab_reports_how_to_install_a_missing_jupyterlab(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    status, _, error = call("lab")
    assert status == 2
    assert "pip install 'thunder-workbench[lab]'" in error
    assert not (tmp_path / "quickstart.ipynb").exists()


@pytest.mark.slow
def test_the_installed_command_runs_in_a_separate_process(tmp_path: Path) -> None:
    command = [str(Path(sys.executable).with_name("thunder-workbench")), "plan", "swap", "--device", "cpu", "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["program"] == "swap"


@pytest.mark.slow
def test_the_parallel_mode_of_ranks_is_printed_and_exported(call: Call) -> None:
    given = ("plan", "mlp", "--device", "cpu", "--executor", "torch", "--ranks", "2", "--json")
    status, out, _ = call(*given, "--parallel", "ddp", "--export", "shared.py")
    assert status == 0
    assert json.loads(out)["overlap"]["ranks"] == 2
    config = load("shared.py")
    assert (config.ranks, config.parallel) == (2, "ddp")
    status, out, _ = call(*given, "--parallel", "zero9")
    assert status != 0
    assert "parallel='zero9' is unknown; legal: fsdp, fsdp_zero3, ddp, tensor" in json.loads(out)["error"]


def test_sites_are_listed_with_their_sizes(capfd: pytest.CaptureFixture[str]) -> None:
    given = ["plan", "mlp", "--device", "cpu", "--executor", "torch", "--set", "layers=1", "--sites", "saved"]
    assert entry.run([*given, "--json"]) == 0
    sites = json.loads(capfd.readouterr().out)["sites"]
    assert any(site["bytes"] for site in sites)
    assert entry.run(given) == 0
    out = capfd.readouterr().out
    assert "size" in out
    assert "KiB" in out.partition("size")[2]


def test_figures_of_a_sweep_have_units() -> None:
    from workbench.cli.sweep import _cell

    assert _cell("measured_peak_bytes", 1536) == "1.50 KiB"
    assert _cell("compile_s", 0.25) == "250 ms"
    assert (_cell("layers", 4), _cell("ok", True), _cell("step_s", None)) == ("4", "True", "")


def test_cache_reports_and_clears_the_cached_programs(
    tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THUNDER_WORKBENCH_CACHE", str(tmp_path / "kept"))
    monkeypatch.setenv("THUNDER_WORKBENCH_REFERENCES", str(tmp_path / "references"))
    assert call("plan", "mlp", "--executor", "torch")[0] == 0
    (kept,) = (tmp_path / "kept").iterdir()
    REFERENCES.store("key", "0", b"step")
    status, out, _ = call("cache", "--json")
    assert status == 0
    found = json.loads(out)
    assert (found["files"], found["total_bytes"]) == (1, kept.stat().st_size)
    assert (found["references"]["files"], found["references"]["total_bytes"]) == (1, 8)
    words = call("cache")[1].replace("\n", " ")
    assert re.search(r"1 program, \S+ KiB of at most 512 MiB, in \S+", words)
    assert re.search(r"1 reference, 8 B of at most 2\.00 GiB, in \S+", words)
    words = call("cache", "--clear")[1]
    assert "removed 1 program," in words
    assert "removed 1 reference," in words
    assert not [*(tmp_path / "kept").iterdir(), *(tmp_path / "references").iterdir()]
    monkeypatch.setenv("THUNDER_WORKBENCH_CACHE", "off")
    monkeypatch.setenv("THUNDER_WORKBENCH_REFERENCES", "off")
    assert call("cache")[1] == (
        "THUNDER_WORKBENCH_CACHE is off: every program is traced when it is opened\n"
        "THUNDER_WORKBENCH_REFERENCES is off: every run computes its own reference\n"
    )
