"""Whatever a file contains, reading it as a config is fast, and an error message is short and printable."""

import os
import re
import time
import warnings
from pathlib import Path

import pytest

from tests.trial_counts import beyond
from workbench.core.config import MOST_BYTES, Config, load, parse
from workbench.errors import ChoiceError, ConfigError, ConfigWarning, printable, short_repr

LEAST = "program='a', executor='torch', device='cpu'"


def refused(text: str) -> str:
    with pytest.raises(ConfigError) as error:
        parse(text)
    message = str(error.value)
    assert message.isprintable()
    assert len(message) < 700
    return message


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    for path, what in (
        (tmp_path / "pipe", r"a pipe \(FIFO\)"),
        (tmp_path / "link", r"a pipe \(FIFO\)"),
        (tmp_path, "a folder"),
        ("/dev/zero", "a device"),
    ):
        with pytest.raises(ConfigError, match=f"cannot read the config .*: it is {what}, not a regular file"):
            load(path)


def test_a_device_file_is_refused_and_not_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(*_: object, **__: object) -> None:
        raise AssertionError

    monkeypatch.setattr(os, "open", opened)
    monkeypatch.setattr("io.open", opened)
    with pytest.raises(ConfigError, match="it is a device"):
        load("/dev/zero")


def test_an_oversized_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "large.py"
    least = f"config = wb.Config({LEAST})\n"
    path.write_text(least + "#" * (MOST_BYTES - len(least)))
    assert load(path).program == "a"
    path.write_text(least + "#" * (MOST_BYTES - len(least) + 1))
    with pytest.raises(ConfigError, match=f"it is larger than {MOST_BYTES} bytes"):
        load(path)
    # A sparse file of 1 TiB is refused by its size, without reading it.
    os.truncate(path, 1 << 40)
    with pytest.raises(ConfigError, match=f"it is larger than {MOST_BYTES} bytes"):
        load(path)
    assert "is too large: it has more than" in refused(least + "#" * MOST_BYTES)


N = 1_000_000
IN = f"config = wb.Config({LEAST}, "
BOMBS = {
    "choices": IN + "choices={" + ",".join(f"'{n}':'a'" for n in range(30_000)) + "})",
    "the same choice": IN + "choices={" + "'a':'b'," * (N // 8) + "})",
    "short entries": IN + "choices={" + "1:2," * (N // 4) + "})",
    "f-strings side by side": IN + "fingerprint=(" + 'f"{a}" ' * (N // 7) + "))",
    "one f-string": IN + 'fingerprint=f"' + "{a:{b}}" * (N // 7) + '")',
    "a raw f-string after a comment": "# '''\n" + IN + "fingerprint=(" + "Rf'{a}' " * (N // 8) + "))",
    "texts side by side": IN + "fingerprint=(" + "'a' " * 200_000 + "))",
    "statements": "1;" * (N // 2),
    "sums": IN + "ranks=" + "1+" * (N // 2) + "1)",
    "signs": IN + "ranks=" + "-" * N + "1)",
    "calls": IN + "ranks=a" + "()" * (N // 2) + ")",
    "conditions": IN + "ranks=" + "1 if 1 else " * (N // 12) + "1)",
    "brackets": IN + "settings=" + "[" * N + ")",
    "nested lists": IN + "settings=" + "[" * 150 + "]" * 150 + ")",
    "nested dicts": IN + "settings=" + "{1:" * 150 + "1" + "}" * 150 + ")",
    "nested with an error": IN + "settings=" + "{1:[(" * 60 + "1 1" + ")]}" * 60 + ")",
    "digits": IN + "ranks=" + "9" * N + ")",
    "hexadecimal digits": IN + "ranks=0x" + "f" * N + ")",
    "a version of many digits": IN + "format_version=0x" + "f" * 4000 + ")",
    "a setting of many digits": IN + "settings={'a': 0x" + "f" * 4000 + "})",
    "a long text": IN + "device2='" + "a" * N + "')",
    "a long device": f"config = wb.Config(program='a', executor='torch', device='{'a' * N}')",
    "a long keyword": IN + "a" * N + "=1)",
    "a long key": IN + "settings={'" + "a" * N + "': None})",
    "many values": IN + "choices=[" + "1," * (N // 16) + "])",
    "open quotes": "'\n" * (N // 2),
    "open long quotes": "'''" + '"' * N,
    "alternating quotes": "'\"" * (N // 2),
    "escapes": IN + "fingerprint='" + "\\d" * (N // 2) + ")",
    "continued lines": "\\\n" * (N // 2),
    "one long line with letters of two bytes": "é," * 70_000,
}


@pytest.mark.parametrize("name", beyond(2, BOMBS, pytest.mark.slow))
def test_no_file_takes_long_to_read(name: str) -> None:
    begun_s = time.thread_time()
    refused_or_read = ""
    try:
        parse(BOMBS[name])
    except ConfigError as error:
        refused_or_read = str(error)
    # Reading a file takes less than 1 s. If the time grew with the square of the file's size, it would take hours.
    assert time.thread_time() - begun_s < 60
    assert len(refused_or_read) < 700
    assert bool(refused_or_read) != (name in ("choices", "texts side by side"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            IN + "ranks=0x" + "f" * 5000 + ")",
            "choices.py:1: ranks must be 1 to 1048576, given <a whole number of 20000",
        ),
        (
            IN + "settings={'a': 0x" + "f" * 5000 + "})",
            "choices.py:1: settings['a'] must have at most 1000 digits, given <a whole number of 20000 bits>",
        ),
        (
            IN + "format_version=0x" + "f" * 5000 + ")",
            "choices.py:1: format_version <a whole number of 20000 bits> is newer than this workbench, which reads 1",
        ),
        (
            f"config = wb.Config(program='a', executor='torch', device='{'x' * 500}')",
            f"choices.py:1: there is no device '{'x' * 97}...{'x' * 98}'; legal: cpu, cuda, planned",
        ),
        (IN + "rank=2)", "unknown keyword 'rank' in wb.Config(...); legal: program, executor, device, choices, "),
        (IN + "rank=2)", "; did you mean ranks?"),
        (
            IN + 'fingerprint=f"{exit()}")',
            'choices.py:1: contains code, which was not executed: `f"{exit()}"`; a config contains',
        ),
        (
            "'''\n'''\n\n" + IN + 'fingerprint="a"\n rF"""b""")',
            'choices.py:5: contains code, which was not executed: `rF"""b"""`',
        ),
    ],
)
def test_messages_name_the_line_and_show_the_beginning_of_long_values(text: str, message: str) -> None:
    assert message in refused(text)


def test_an_f_before_a_string_is_code_only_as_a_prefix() -> None:
    text = f"# f'x' {{y}}\nconfig = wb.Config({LEAST}, choices={{'saved:f\"x\"': \"f'\", r'f': b'f' 'g'}})"
    with pytest.raises(ConfigError, match="not valid Python: cannot mix bytes"):
        parse(text)
    assert parse(text.replace("b'f' 'g'", "'''f'x' '''")).choices == {'saved:f"x"': "f'", "f": "f'x' "}


STEERING = "\x1b]0;title\x07\x1b[31m\x9b2J\u202e\u2028\x7f\r\ud800"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('"""Choices for PyTorch: f on cpu, made with Thunder Workbench.\n"""\n', "import it in your script"),
        ('{"format": "thunder-workbench plan", "format_version": 1}\n', "it is a saved plan; open it with wb.open"),
    ],
)
def test_another_file_of_the_workbench_is_named(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)) as error:
        parse(text, "f.py")
    assert str(error.value).startswith("f.py is not a config: ")


def test_no_terminal_control_character_is_in_a_message(tmp_path: Path) -> None:
    for text in (
        f"config = wb.Config(program='a', executor='torch', device={STEERING[:-1]!r})",
        f"config = wb.Config(program='a', executor='torch', device='{STEERING[:-3]}')",
        f"config = wb.Config({LEAST}, choices={{'{STEERING[:-4]}': 1}})",
        f"config = wb.Config({LEAST}, choices={{1: '{STEERING[:-4]}'}})",
        f"exit('{STEERING[:-4]}')",
        f"config = wb.Config({LEAST}, settings={{'a': {STEERING[:-4]}}})",
    ):
        refused(text)
    path = tmp_path / "\x1b[31m\n.py"
    path.write_text("exit()")
    with pytest.raises(ConfigError) as error:
        load(path)
    assert str(error.value).isprintable()
    assert r"\x1b[31m\n.py:1: contains code" in str(error.value)


def test_every_error_and_warning_can_be_printed() -> None:
    assert str(ChoiceError(f"a {STEERING} b")) == (r"a \x1b]0;title\x07\x1b[31m\x9b2J\u202e\u2028\x7f\r\ud800 b")
    assert printable("Größe: 3 µs – 🙂\n\tnext") == "Größe: 3 µs – 🙂\n\tnext"
    assert str(ConfigWarning("\x1b[0m")) == r"\x1b[0m"
    assert short_repr("\u202e") == r"'\u202e'"


def test_reading_gives_no_warning(tmp_path: Path) -> None:
    (tmp_path / "c.py").write_text(f"config = wb.Config({LEAST}, fingerprint='\\d')")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load(tmp_path / "c.py").fingerprint == "\\d"


def test_settings_that_cannot_be_written_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"settings\['n'\] must have at most 1000 digits"):
        Config(program="a", executor="torch", device="cpu", settings={"n": 10**5000})
