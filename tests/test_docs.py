"""The documentation builds without a warning, and its links and named files exist."""

from __future__ import annotations

import json
import os
import pkgutil
import re
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import typer

from tests.needs import needs_nvfuser
from workbench import errors
from workbench.bench.session.multi_graph import PartsBench
from workbench.bench.session.workbench import Workbench
from workbench.cli.entry import app
from workbench.interop.private_api import TORCH_VERSIONS
from workbench.ui.app.places import PLACES
from workbench.ui.controls.help import TABS

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"\]\(([^)\s]+)\)")
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "notebooks" / "lessons" / "README.md"]


@pytest.mark.slow
def test_the_pages_build_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    told = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stdout + told.stderr
    assert "WARNING" not in told.stderr
    api = (tmp_path / "site" / "reference" / "api.html").read_text()
    for name in (
        "workbench.bench.session.workbench.Workbench.choose",
        "workbench.core.config.Config.jit",
        "workbench.runs.process.follow_run.Run",
    ):
        assert f'id="{name}"' in api


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[a page](gone.md)", "gone.md"),
        ("[a heading](index.md#gone)", "#gone"),
        ("::: workbench.core.lever.Gone", "workbench.core.lever.Gone"),
    ],
)
def test_a_broken_link_and_an_unknown_name_fail_the_build(text: str, fault: str, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text(f"# Index\n\n{text}\n")
    settings = (ROOT / "mkdocs.yml").read_text().partition("nav:")[0].replace("paths: [.]", f"paths: [{ROOT}]")
    (tmp_path / "mkdocs.yml").write_text(settings)
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    told = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert told.returncode != 0
    assert fault in told.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_in_other_markdown_files_lead_to_files(page: Path) -> None:
    links = [link for link in LINK.findall(page.read_text()) if not link.startswith(("http", "#"))]
    missing = [link for link in links if not (page.parent / link.partition("#")[0]).exists()]
    assert not missing


NAMED = re.compile(r"`((?:[\w.-]+/)*[a-z_0-9]+\.(?:py|js|csv))`")


def test_files_named_in_pages_and_docstrings_exist() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    pages = [name for name in listed if name.endswith(".md") or re.match(r"workbench/.*\.py$", name)]
    missing = [
        f"{page}: {name}"
        for page in pages
        for name in NAMED.findall((ROOT / page).read_text())
        if not any(f"/{path}".endswith(f"/{name.removeprefix('../')}") for path in listed)
    ]
    of_thunder = "workbench/compiler/interop/dynamo_patches.py: torch_autograd.py"
    assert [each for each in missing if each != of_thunder] == []


def exists(name: str) -> bool:
    """Return whether a module, or what a module or class contains, has this name."""
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        owner, _, attribute = name.rpartition(".")  # a field of a dataclass is an attribute of the instances only
        return exists(owner) and attribute in getattr(pkgutil.resolve_name(owner), "__annotations__", {})
    return True


@pytest.mark.slow
def test_names_of_the_package_in_pages_and_sources_exist() -> None:
    sources = [path for folder in ("workbench", "tests", "benchmarks") for path in (ROOT / folder).rglob("*.py")]
    named = {
        (str(path.relative_to(ROOT)), name)
        for path in (*PAGES, *pages(), *sources)
        for name in re.findall(r"`(workbench(?:\.\w+)+)(?:\(\))?`", path.read_text())
    }
    assert len(named) > 80
    assert not exists("workbench.compiler.fusion.executors.definition")
    assert [(path, name) for path, name in sorted(named) if not exists(name)] == []


def pages() -> list[Path]:
    return sorted((ROOT / "docs").rglob("*.md"))


def blocks(language: str) -> list[tuple[Path, str]]:
    """Return each code block of a language in the pages and the README, with its path and without indentation."""
    pattern = re.compile(rf"^( *)```{language}\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
    texts = [*pages(), ROOT / "README.md"]
    return [(page, textwrap.dedent(body)) for page in texts for _, body in pattern.findall(page.read_text())]


def test_commands_on_the_pages_exist_with_their_options() -> None:
    group = typer.main.get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    unknown, seen = [], 0
    for page, block in blocks("sh"):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if not words or words[0] != "thunder-workbench":
                continue
            seen += 1
            command = group.commands.get(words[1])
            options = {name for each in command.params for name in each.opts} if command else set()
            given = [word for word in words[2:] if word.startswith("--")]
            unknown += [f"{page.name}: {line}"] if command is None or not options.issuperset(given) else []
    assert seen > 20
    assert unknown == []


def test_pages_name_the_supported_versions_of_pytorch() -> None:
    least, below = re.fullmatch(r">=2\.(\d+),<2\.(\d+)", TORCH_VERSIONS).groups()
    texts = {page.name: page.read_text() for page in [*pages(), ROOT / "README.md"]}
    named = {(name, span) for name, text in texts.items() for span in re.findall(r"PyTorch (2\.\d+ to 2\.\d+)", text)}
    assert named == {(name, f"2.{least} to 2.{int(below) - 1}") for name, _ in named}
    assert {"README.md", "upgrading.md"} <= dict(named).keys()


def test_the_changelog_and_the_citation_name_the_same_version() -> None:
    newest = re.search(r"^## \[(\d+\.\d+\.\d+)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    cited = re.search(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert (newest and newest[1]) == (cited and cited[1]) is not None


def test_names_of_a_bench_on_the_pages_exist() -> None:
    texts = [*pages(), ROOT / "README.md"]
    used = {(page.name, name) for page in texts for name in re.findall(r"(?<![.\w])bench\.([a-z_]+)", page.read_text())}
    # `dir` of a class lacks the attributes that `__init__` sets. Their names are in `co_names` of `__init__`.
    known = {name for kind in (Workbench, PartsBench) for name in (*dir(kind), *kind.__init__.__code__.co_names)}
    assert len(used) > 50
    assert [(page, name) for page, name in sorted(used) if name not in known] == []


def test_pages_outside_of_the_reference_have_two_thousand_words_at_most() -> None:
    free = ROOT / "docs" / "reference"
    long = {page.name: len(page.read_text().split()) for page in pages() if free not in page.parents}
    assert {name: words for name, words in long.items() if words > 2_000} == {}


def test_pages_begin_with_the_question_that_they_answer() -> None:
    begin = re.compile(r"# .+\n\nThis page (answers|explains|says|shows|takes) ")
    without = [page.name for page in pages() if not begin.match(page.read_text())]
    assert without == ["index.md"]


def test_the_page_on_errors_has_every_error() -> None:
    page = (ROOT / "docs" / "reference" / "troubleshooting.md").read_text()
    bases = {"WorkbenchError", "WorkbenchWarning", "UnknownRunError"}
    raised = {name for name in vars(errors) if name.endswith(("Error", "Warning"))} - bases
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == raised


FORMS = {"chosen": "choice"}
"""Words on the screen that begin otherwise than their word of the glossary, which explains them."""


def glossary() -> list[str]:
    return re.findall(r"^\| \*\*(.+?)\*\* \|", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE)


def test_the_glossary_has_forty_words_at_most() -> None:
    assert 0 < len(glossary()) <= 40
    assert glossary() == sorted(glossary())


def test_every_tab_and_figure_on_the_screen_has_a_word_of_the_glossary() -> None:
    strip = (ROOT / "workbench" / "ui" / "controls" / "figure_strip.py").read_text()
    figures = re.findall(r'"title": "([^"]+)"', strip)
    assert figures
    known = tuple(word for term in glossary() for word in term.split())
    unknown = [
        label
        for label in (*PLACES, *TABS, *figures)
        if not any(FORMS.get(word, word).startswith(known) for word in label.lower().split() if len(word) > 2)
    ]
    assert unknown == []


@needs_nvfuser
@pytest.mark.slow
@pytest.mark.long
def test_pictures_are_the_products_output() -> None:
    code = "import json, runpy; print(json.dumps(runpy.run_path('docs/picture.py')['drawn']([])))"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    told = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    drawn = json.loads(told.stdout)
    assert {name: (ROOT / "docs" / name).read_text() for name in drawn} == drawn
    assert sorted(drawn) == sorted(str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.svg"))
    assert max(map(len, drawn.values())) < 60_000
