"""A config is a file that people can read. Loading a config executes no code of the file."""

import errno
import math
import os
import pickle
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import workbench as wb
from tests.trial_counts import amount
from workbench.core.config import Config, installed_versions, lever_of, load, parse
from workbench.errors import ConfigError

GOLDEN = '''\
"""Choices for Thunder: llama, device cpu, executor torchcompile.

A script can apply these choices without the app:

    import workbench as wb

    config = wb.load('choices.py')
    fast = config.jit(model)  # thunder.jit with exactly these choices

`wb.load` never executes this file. The arguments of `wb.Config` may only be literals. A choice is a site
and its option; a site that is not named stays as in unmodified Thunder.
"""

import workbench as wb

config = wb.Config(
    format_version=1,
    program="llama",
    settings={
        "dtype": "float32",
        "layers": 12,
    },
    device="cpu",
    executor="torchcompile",
    ranks=1,
    choices={
        "remat.weight": "0.0",

        # where recompute is placed
        "saved.place": "before",
        # hidden, llama.py:113: F.silu(self.gate(x)) * self.up(x)
        "saved:layers.2.mlp/mul": "recompute",
        "saved:layers.10.mlp/mul": "recompute",
    },
    fingerprint="9f2c41d0",
    versions={
        "lightning-thunder": "0.2.7",
        "torch": "2.10.0",
    },
)
'''

CONFIG = Config(
    program="llama",
    executor="torchcompile",
    device="cpu",
    settings={"layers": 12, "dtype": "float32"},
    choices={
        "saved:layers.10.mlp/mul": "recompute",
        "saved:layers.2.mlp/mul": "recompute",
        "saved.place": "before",
        "remat.weight": "0.0",
    },
    fingerprint="9f2c41d0",
    versions={"torch": "2.10.0", "lightning-thunder": "0.2.7"},
)

NOTES = {
    "saved:layers.2.mlp/mul": "hidden,\n  llama.py:113:\tF.silu(self.gate(x)) * self.up(x)",
    "saved.place": "where recompute is placed",
    "not chosen": "not written",
}

LEAST = "program='a', executor='torch', device='cpu'"


def test_a_config_has_a_readable_text() -> None:
    assert CONFIG.text(NOTES) == GOLDEN


def test_a_comment_does_not_repeat_the_site_and_takes_one_line() -> None:
    site = "saved:layers.2.mlp/mul"
    text = CONFIG.text({site: "layers.2.mlp/mul llama.py:113  x = y"})
    assert "        # llama.py:113 x = y\n" in text
    assert max(map(len, CONFIG.text({site: "many words " * 30}).splitlines())) < 120


def test_a_written_config_is_read_back() -> None:
    assert parse(GOLDEN) == CONFIG


texts = st.text(st.characters(codec=None), max_size=30)
scalars = texts | st.integers() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False)
configs = st.builds(
    Config,
    program=texts,
    executor=st.sampled_from(["torch", "torchcompile", "nvfuser"]),
    device=st.sampled_from(["cpu", "cuda", "planned"]),
    choices=st.dictionaries(texts, texts, max_size=6),
    fingerprint=texts,
    settings=st.dictionaries(texts, scalars, max_size=4),
    versions=st.dictionaries(texts, texts, max_size=3),
    ranks=st.integers(1, 2**20),
    parallel=st.sampled_from(["", "fsdp", "fsdp_zero3", "ddp", "tensor"]),
)


@pytest.mark.drawn
@settings(max_examples=amount(15, 40, 400))
@given(config=configs, note=texts, file=texts)
def test_a_config_with_any_texts_is_read_back(config: Config, note: str, file: str) -> None:
    text = config.text(dict.fromkeys(config.choices, note), file=file)
    assert parse(text) == config
    assert parse(text).text(dict.fromkeys(config.choices, note), file=file) == text


@given(config=configs)
def test_any_config_is_a_module_that_runs(config: Config) -> None:
    names: dict[str, Any] = {}
    exec(config.text(), names)
    assert names["config"] == config


@pytest.mark.slow
@pytest.mark.drawn
@settings(max_examples=amount(15, 40, 400))
@given(text=st.text(max_size=200) | st.text("wbConfig=.(){}[]'\"\\\n ,*:#f1-", max_size=60))
def test_a_text_that_is_not_a_config_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse(text)
    assert "\n" not in str(error.value)


def test_a_file_is_written_and_read(tmp_path: Path) -> None:
    path = CONFIG.write(tmp_path / "choices.py", NOTES)
    assert path.read_text(encoding="utf-8") == GOLDEN
    assert wb.load(path) == CONFIG
    assert [other.name for other in tmp_path.iterdir()] == ["choices.py"]
    assert stat.S_IMODE(path.stat().st_mode) & 0o044 == 0o666 & ~_umask() & 0o044


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_writing_a_config_to_a_link_writes_the_target_of_the_link(tmp_path: Path) -> None:
    (tmp_path / "link.py").symlink_to(tmp_path / "real.py")
    CONFIG.write(tmp_path / "link.py")
    assert (tmp_path / "link.py").is_symlink()
    assert load(tmp_path / "real.py") == CONFIG


def test_a_byte_order_mark_and_windows_line_ends_are_read(tmp_path: Path) -> None:
    (tmp_path / "choices.py").write_bytes(b"\xef\xbb\xbf" + GOLDEN.replace("\n", "\r\n").encode())
    assert load(tmp_path / "choices.py") == CONFIG


def test_comments_and_another_order_of_arguments_are_read() -> None:
    text = "# mine\nconfig = wb.Config(device='cpu', executor='torch',\n  program='a')  # end\n"
    assert parse(text) == parse(f"import workbench as wb\nconfig = wb.Config({LEAST})")


def test_if_the_disk_is_full_the_old_file_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = CONFIG.write(tmp_path / "choices.py", NOTES)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ConfigError, match=r"cannot write .*choices\.py: no space left on device; nothing was written"):
        CONFIG.with_choices({"a:b": "c"}).write(path)
    assert path.read_text(encoding="utf-8") == GOLDEN
    assert [other.name for other in tmp_path.iterdir()] == ["choices.py"]


def test_writing_into_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot write .*gone/choices\.py: no such file or directory"):
        CONFIG.write(tmp_path / "gone" / "choices.py")


MARK = "reading a config has executed it"


@pytest.mark.parametrize(
    "text",
    [
        f"raise SystemExit('{MARK}')",
        f"import workbench as wb\nconfig = wb.Config({LEAST})\nraise SystemExit('{MARK}')",
        f"import workbench as wb\nconfig = wb.Config({LEAST}, fingerprint=exit('{MARK}'))",
        f"import workbench as wb\nconfig = wb.Config({LEAST}, choices={{exit('{MARK}'): 'a'}})",
        f"import workbench as wb\nconfig = wb.Config({LEAST}, choices=[x for x in exit()])",
        f"import workbench as wb\nconfig = wb.Config({LEAST}, fingerprint=f'{{exit()}}')",
        f"import workbench as wb\nconfig = wb.Config({LEAST}, fingerprint='a' + 'b')",
        f"import workbench as wb\nconfig = wb.Config({LEAST}, fingerprint=__file__)",
        f"import workbench as wb\nconfig = wb.Config({LEAST}, choices={{**{{}}}})",
        f"import workbench as wb\nconfig = wb.Config(**{{}}, {LEAST})",
        f"import workbench as wb\nconfig = wb.Config('a', {LEAST})",
        f"import workbench as wb\nconfig = wb.Config(*[], {LEAST})",
        f"import workbench as wb\nconfig = exit.Config({LEAST})",
        f"import workbench as wb\nconfig = wb.open({LEAST})",
        f"import workbench as wb\nconfig = other = wb.Config({LEAST})",
        f"import workbench as wb\nother = wb.Config({LEAST})",
        f"import workbench as wb\nconfig: exit() = wb.Config({LEAST})",
        f"import workbench as wb\nwb.Config({LEAST})",
        f"import workbench as wb\nconfig = wb.Config({LEAST})\nconfig = wb.Config({LEAST})",
        f"import workbench as wb, os\nconfig = wb.Config({LEAST})",
        f"import os as wb\nconfig = wb.Config({LEAST})",
        f"from workbench import *\nconfig = wb.Config({LEAST})",
        f"import workbench as wb\nif True:\n    config = wb.Config({LEAST})",
        f"import workbench as wb\nconfig = wb.Config({LEAST})\n'a text'",
        f"import workbench as wb\nexit()\nconfig = wb.Config({LEAST})",
    ],
)
def test_code_in_a_config_is_refused_and_not_executed(text: str, tmp_path: Path) -> None:
    path = tmp_path / "choices.py"
    path.write_text(text)
    with pytest.raises(
        ConfigError,
        match=r"choices\.py:\d: contains code, which was not executed: `.+`; a config contains only a docstring",
    ):
        load(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "choices.py is empty"),
        (" \n\n", "choices.py is empty"),
        ('"""Only words."""', "choices.py does not contain `config = wb.Config"),
        ("import workbench as wb", "choices.py does not contain `config = wb.Config"),
        ("\nconfig = wb.Config(", "choices.py:2: not valid Python: '(' was never closed"),
        ("config = wb.Config(\0)", "choices.py:1: not valid Python"),
        (f"config = wb.Config(program={'(' * 500}", "choices.py:1: not valid Python"),
        (f"config = wb.Config(program={'-' * 100_000}1)", "choices.py: not valid Python"),
        ("config = wb.Config()", "choices.py:1: wb.Config(...) lacks program, executor, device"),
        (
            f"config = wb.Config({LEAST}, colour=1)",
            "choices.py:1: unknown keyword 'colour' in wb.Config(...); legal: program,",
        ),
        (f"config = wb.Config({LEAST}, program='b')", "choices.py:1: program is given twice"),
        (f"config = wb.Config({LEAST},\n choices={{'a': 'b', 'a': 'c'}})", "choices.py:2: 'a' is given twice"),
        (
            f"config = wb.Config({LEAST}, format_version=2, new=1)",
            "format_version 2 is newer than this workbench, which reads 1",
        ),
        (f"config = wb.Config({LEAST}, format_version=0)", "format_version 0 is unknown; legal: 1"),
        (f"config = wb.Config({LEAST}, format_version='1')", "format_version must be a whole number, given '1'"),
        (f"config = wb.Config({LEAST}, choices=['a'])", "choices must be a dict, given ['a']"),
        (f"config = wb.Config({LEAST}, choices={{'a': 0.5}})", "choices['a'] must be a text, given 0.5"),
        (
            f"config = wb.Config({LEAST},\n choices={{'a': 'b',\n 'c': True}})",
            "choices.py:3: choices['c'] must be a text",
        ),
        (f"config = wb.Config({LEAST}, choices={{1: 'a'}})", "a key of choices must be a text, given 1"),
        (
            f"config = wb.Config({LEAST}, settings={{'a': None}})",
            "settings['a'] must be a text, a finite number, or True or False",
        ),
        (f"config = wb.Config({LEAST}, settings={{'a': 1e999}})", "settings['a'] must be a text, a finite number"),
        (f"config = wb.Config({LEAST}, ranks=True)", "ranks must be a whole number, given True"),
        (f"config = wb.Config({LEAST}, ranks=0)", "ranks must be 1 to 1048576, given 0"),
        (f"config = wb.Config({LEAST}, parallel='zero9')", "parallel='zero9' is unknown; legal: fsdp, fsdp_zero3,"),
        (f"config = wb.Config({LEAST}, parallel=8)", "parallel must be a text, given 8"),
        ("config = wb.Config(program=5, executor='torch', device='cpu')", "program must be a text, given 5"),
        (
            "config = wb.Config(program='a', executor='xla', device='cpu')",
            "no executor 'xla'; legal: nvfuser, torchcompile, torch",
        ),
        (
            "config = wb.Config(program='a', executor='torch', device='tpu')",
            "no device 'tpu'; legal: cpu, cuda, planned",
        ),
    ],
)
def test_each_defect_has_one_message(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "choices.py").write_text(text)
    with pytest.raises(ConfigError) as error:
        load(tmp_path / "choices.py")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_unreadable_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read the config .*gone\.py: no such file or directory"):
        load(tmp_path / "gone.py")
    (tmp_path / "latin.py").write_bytes(b"# caf\xe9\n")
    with pytest.raises(ConfigError, match="is not UTF-8 text: byte 5 is 0xe9"):
        load(tmp_path / "latin.py")


def test_a_config_copies_its_arguments() -> None:
    choices = {"a:b": "c"}
    config = Config(program="a", executor="torch", device="cpu", choices=choices)
    choices["d:e"] = "f"
    assert config.choices == {"a:b": "c"}
    assert pickle.loads(pickle.dumps(config)) == config


def test_with_choices_adds_and_changes_and_removes_choices() -> None:
    config = CONFIG.with_choices({"remat.weight": "0.5", "copies:a": "keep", "saved.place": None})
    assert config.choices == {
        "saved:layers.10.mlp/mul": "recompute",
        "saved:layers.2.mlp/mul": "recompute",
        "remat.weight": "0.5",
        "copies:a": "keep",
    }
    assert CONFIG.choices["remat.weight"] == "0.0"


def test_numbers_that_are_not_finite_are_refused() -> None:
    with pytest.raises(ConfigError, match="finite number"):
        Config(program="a", executor="torch", device="cpu", settings={"p": math.nan})


@pytest.mark.parametrize(
    ("site", "lever"), [("saved:layers.0/x:y", "saved"), ("remat.weight", "remat"), ("odd", "odd")]
)
def test_a_site_names_its_lever(site: str, lever: str) -> None:
    assert lever_of(site) == lever


def test_the_versions_for_a_config_are_the_installed_versions() -> None:
    assert {"torch", "lightning-thunder", "thunder-workbench"} <= installed_versions().keys()
