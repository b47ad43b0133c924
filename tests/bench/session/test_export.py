"""Exporting a config writes the whole file or nothing.

It creates a file, or replaces a config or an empty file. It replaces other files only with `overwrite=True`.
"""

import os
import resource
import signal
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from workbench.analysis.cost import chrome_trace
from workbench.core.config import Config, load
from workbench.errors import ConfigError, RunError

CONFIG = Config(program="llama", executor="torch", device="cpu", choices={"saved:layers.2.mlp/mul": "recompute"})
OTHER = CONFIG.with_choices({"saved.place": "before"})


def refused(path: str | Path, *, overwrite: bool = False) -> str:
    with pytest.raises(ConfigError) as error:
        CONFIG.write(path, overwrite=overwrite)
    return str(error.value)


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


def make_link_to_pipe(path: Path) -> None:
    os.mkfifo(path.with_name("pipe"))
    path.symlink_to("pipe")


def make_socket(path: Path) -> None:
    # A socket's path may have at most 108 bytes, so bind by the relative path.
    before = Path.cwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(path.name)
    finally:
        os.chdir(before)


def make_folder(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize(
    ("make", "what"),
    [
        (make_pipe, "a pipe (FIFO)"),
        (make_link_to_pipe, "a pipe (FIFO)"),
        (make_socket, "a socket"),
        (make_folder, "a folder"),
    ],
)
def test_only_regular_files_are_written(
    make: Callable[[Path], None], what: str, overwrite: bool, tmp_path: Path
) -> None:
    path = tmp_path / "there"
    make(path)
    before = {each.name: each.lstat() for each in tmp_path.iterdir()}
    assert refused(path, overwrite=overwrite) == (
        f"cannot write {path}: it is {what}, not a regular file; nothing was written, and the choices still apply"
    )
    after = {each.name: each.lstat() for each in tmp_path.iterdir()}
    assert {name: (each.st_mode, each.st_ino) for name, each in after.items()} == {
        name: (each.st_mode, each.st_ino) for name, each in before.items()
    }


def test_a_device_is_refused_before_anything_is_opened_or_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    def touched(*given: object, **_: object) -> None:
        raise AssertionError(f"touched: {given}")

    for name in ("open", "replace", "rename", "link", "unlink", "truncate", "chmod", "chown"):
        monkeypatch.setattr(os, name, touched)
    for device in ("/dev/null", "/dev/full"):
        assert "it is a device, not a regular file" in refused(device, overwrite=True)
        assert stat.S_ISCHR(os.stat(device).st_mode)


@pytest.mark.parametrize(
    "text",
    [
        "print('mine')\n",
        "import workbench as wb\nconfig = wb.load('other.py')\nconfig.jit(print)\n",
        'config = wb.Config(program="a", executor="torch", device="cpu")\nprint(config)\n',
        "broken (\n",
        "\xff\n",
        "# my notes on this\n",
    ],
)
def test_a_file_that_is_not_a_config_is_replaced_only_with_overwrite(text: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(text, encoding="latin-1")
    assert refused(path) == (
        f"cannot write {path}: the file exists and is not a config; nothing was written, and the choices still "
        "apply; give another name, or overwrite=True to replace it"
    )
    assert path.read_text(encoding="latin-1") == text
    CONFIG.write(path, overwrite=True)
    assert load(path) == CONFIG


@pytest.mark.parametrize("text", ["", "\n \n", 'config = wb.Config(format_version=99, new="field")\n'])
def test_empty_files_and_configs_of_any_form_are_replaced(text: str, tmp_path: Path) -> None:
    path = tmp_path / "c.py"
    path.write_text(text)
    CONFIG.write(path)
    assert load(path) == CONFIG


def test_the_mode_and_the_owner_are_kept(tmp_path: Path) -> None:
    path = CONFIG.write(tmp_path / "c.py")
    owner = (65534, 65534) if os.geteuid() == 0 else (os.geteuid(), os.getegid())
    os.chown(path, *owner)
    path.chmod(0o4750)
    OTHER.write(path)
    there = path.stat()
    assert (stat.S_IMODE(there.st_mode), there.st_uid, there.st_gid) == (0o4750, *owner)
    assert load(path) == OTHER


def test_a_file_that_would_change_its_owner_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = CONFIG.write(tmp_path / "c.py")

    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "chown", refuse)
    here = path.stat()

    def elsewhere(self: Path, **_: object) -> os.stat_result:
        found = os.stat(self)
        return os.stat_result([*found[:4], here.st_uid + 1, *found[5:10]]) if self.name == "c.py" else found

    monkeypatch.setattr(Path, "stat", elsewhere)
    with pytest.raises(ConfigError, match="it belongs to another user or group, and its owner cannot be kept"):
        OTHER.write(path)
    monkeypatch.undo()
    assert load(path) == CONFIG
    assert os.listdir(tmp_path) == ["c.py"]


def test_a_read_only_file_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = CONFIG.write(tmp_path / "c.py")
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(ConfigError, match=r"cannot write .*c\.py: permission denied"):
        OTHER.write(path)
    assert load(path) == CONFIG


def test_links_keep_their_targets(tmp_path: Path) -> None:
    (tmp_path / "second.py").symlink_to("first.py")
    (tmp_path / "first.py").symlink_to("real.py")
    for config in (CONFIG, OTHER):
        config.write(tmp_path / "second.py")
        assert os.readlink(tmp_path / "second.py") == "first.py"
        assert os.readlink(tmp_path / "first.py") == "real.py"
        assert load(tmp_path / "real.py") == config


def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    path = CONFIG.write(tmp_path / "c.py")
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.getsignal(signal.SIGXFSZ)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        with pytest.raises(ConfigError, match=r"cannot write .*c\.py: file too large; nothing was written"):
            OTHER.write(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert load(path) == CONFIG
    assert os.listdir(tmp_path) == ["c.py"]


def test_an_interrupt_while_writing_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = CONFIG.write(tmp_path / "c.py")

    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        OTHER.write(path)
    assert load(path) == CONFIG
    assert os.listdir(tmp_path) == ["c.py"]


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("", "no file name is given"),
        (".", "no file name is given"),
        ("~no such user/c.py", "~ names a user that this machine does not have"),
        ("n" * 5000, "file name too long"),
        ("a/" * 5000, "file name too long"),
        ("c\0.py", "a file name cannot contain the character NUL"),
        ("c\ud800.py", "a file name cannot contain half of a surrogate pair"),
        ("loop", "too many levels of symbolic links"),
        ("gone/c.py", "no such file or directory"),
        ("file/c.py", "not a directory"),
    ],
)
def test_impossible_file_names_are_refused(
    path: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("loop").symlink_to("loop")
    Path("file").touch()
    assert f": {why}; nothing was written" in refused(path)
    with pytest.raises(ConfigError, match=f": {why}"):
        load(path)


def test_the_longest_possible_file_name_is_written(tmp_path: Path) -> None:
    name = "n" * 252 + ".py"
    assert load(CONFIG.write(tmp_path / name)) == CONFIG


def test_a_file_name_that_is_not_utf8_is_written_and_read(tmp_path: Path) -> None:
    path = os.fsdecode(os.fsencode(tmp_path / "c") + b"\xff.py")
    assert load(CONFIG.write(path)) == CONFIG
    Path(path).write_text("exit()")
    with pytest.raises(ConfigError, match=r"c\\udcff\.py:1: contains code, which was not executed: `exit\(\)`"):
        load(path)


def test_traces_are_written_like_configs(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text('{"traceEvents": ["older"]}')
    path.chmod(0o600)
    chrome_trace.write_trace({"traceEvents": []}, path)
    assert path.read_text() == '{"traceEvents": []}'
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    (tmp_path / "mine.json").write_text("{}")
    with pytest.raises(
        RunError, match=r"the trace .*mine.json cannot be written: the file exists and is not a trace: give"
    ):
        chrome_trace.write_trace({"traceEvents": []}, tmp_path / "mine.json")
    assert (tmp_path / "mine.json").read_text() == "{}"
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(RunError, match=r"the trace .*pipe cannot be written: it is a pipe \(FIFO\), not a regular"):
        chrome_trace.write_trace({"traceEvents": []}, tmp_path / "pipe")
