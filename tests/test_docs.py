"""Every code block in the README and the docs runs.

`python` blocks of a page share one namespace, `sh` blocks one directory, which is empty: a page uses data that comes
with the package, or makes its own. Other blocks (`text`, `json`, `toml`, `console`) are for reading: output, settings,
and commands that need a whole machine.
"""

from __future__ import annotations

import inspect
import os
import re
import shlex
import subprocess
import sys
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

import fedcalib as fc
from fedcalib.cli.app import build, run
from fedcalib.registry import ROWS

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.M | re.S)
KINDS = {"python", "sh", "text", "json", "toml", "console", "html", "bibtex", "ini", "mermaid"}


def blocks(page: Path) -> list[tuple[str, str]]:
    return [(match[1], match[2]) for match in BLOCK.finditer(page.read_text())]


@dataclass(frozen=True)
class Command:
    """The words after `fedcalib`, and the file that the command's output goes to."""

    words: list[str]
    out: str | None

    def run(self) -> int:
        """Run it in this process; returns the exit code."""
        words = [found for word in self.words for found in matching_files(word)]
        if self.out is None:
            return run(words)
        with Path(self.out).open("w", encoding="utf-8") as file, redirect_stdout(file):
            return run(words)


def commands(code: str) -> list[Command] | None:
    """The commands of a block that has nothing but commands of fedcalib; None where it needs a shell.

    A process per command would take most of the time of the pages. What is read here of a shell's language: comments,
    words in quotes, patterns of files, `name="words"` with `$name`, and `> file` at the end.
    """
    known: dict[str, str] = {}
    found = []
    for line in code.replace("\\\n", " ").splitlines():
        bare = re.sub(r"(^|\s)#.*", "", line).strip()
        if named := re.fullmatch(r'(\w+)="([^"$`\\\']*)"', bare):
            known[named[1]] = named[2]
        elif bare:
            bare = re.sub(r"\$(\w+)", lambda match: known.get(match[1], match[0]), bare)
            bare, _, out = bare.partition(" > ")
            if not bare.startswith("fedcalib ") or re.search(r"[|<>;&$`~{]", bare) or re.search(r"[^\w./-]", out):
                return None
            found.append(Command(shlex.split(bare)[1:], out or None))
    return found


def matching_files(word: str) -> list[str]:
    """What a shell makes of a word: the files that match a pattern, or the word itself."""
    return (sorted(map(str, Path().glob(word))) if "*" in word else []) or [word]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_code_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDCALIB_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    space: dict[str, object] = {"__name__": "docs"}
    if any(kind == "python" and re.search(r"^import torch", code, re.M) for kind, code in blocks(page)):
        pytest.importorskip("torch")
    for kind, code in blocks(page):
        assert kind in KINDS, f"say what kind of block this is: {code[:60]!r}"
        if kind == "python":
            exec(compile(code, str(page), "exec", dont_inherit=True), space)
        elif kind == "sh" and (plain := commands(code)) is not None:
            for command in plain:
                assert command.run() == 0, f"fedcalib {shlex.join(command.words)}"
        elif kind == "sh":
            done = subprocess.run(["bash", "-euo", "pipefail", "-c", code], capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr}"


def test_blocks_that_need_no_shell_are_read_as_a_shell_reads_them(tmp_path: Path) -> None:
    code = """
# a comment; with a semicolon
columns="--site hospital --label disease"
fedcalib evaluate $columns "a b.csv" --epsilon 1  # and another > one
fedcalib evaluate a.csv \\
  --format json > report.json
"""
    shell = ["bash", "-euc", f"fedcalib() {{ printf '%s\\n' \"$@\"; }}; {code}"]
    expected = subprocess.run(shell, capture_output=True, text=True, cwd=tmp_path, check=True).stdout.splitlines()
    first, second = commands(code) or ()
    assert first.words == expected
    assert (first.out, second.out) == (None, "report.json")
    assert second.words == (tmp_path / "report.json").read_text().splitlines()
    for needs in ("fedcalib demo | cat", "ls", "fedcalib apply $unknown", "fedcalib demo; ls", "x=1 fedcalib demo"):
        assert commands(needs) is None


def test_no_two_pages_share_a_ledger() -> None:
    """Somebody who follows one page after another in one folder must not meet a budget that is spent."""
    found: dict[str, set[str]] = {}
    for page in PAGES:
        for kind, code in blocks(page):
            if kind in ("python", "sh"):
                for file in re.findall(r"[\w-]+\.db\b", code):
                    found.setdefault(file, set()).add(page.name)
    assert {"budget.db", "comparison.db"} <= set(found)
    assert not {file: pages for file, pages in found.items() if len(pages) > 1}


def test_the_readme_begins_with_an_installation_and_a_command_that_needs_no_data() -> None:
    kind, code = blocks(ROOT / "README.md")[0]
    assert kind == "console"
    assert [line.partition("#")[0].strip() for line in code.splitlines()] == ["pip install fedcalib", "fedcalib demo"]


def test_ambiguous_words_are_in_the_vocabulary() -> None:
    page = (ROOT / "docs" / "reference" / "vocabulary.md").read_text()
    words = {word for row in re.findall(r"^\| ([^|]+?) \|", page, re.M) for word in row.split(", ")}
    assert {"model", "privacy model", "client", "site", "unit", "record", "artifact"} <= words


def test_every_command_is_on_its_page() -> None:
    page = (ROOT / "docs" / "reference" / "command-line.md").read_text()
    listed = set(re.findall(r"`(?:fedcalib )?(\w+)[^`]*`", "".join(re.findall(r"^\| (`.+?) \|", page, re.M))))
    assert set(build().commands) <= listed


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    prose = BLOCK.sub("", page.read_text())
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", prose):
        if not target.startswith(("http", "mailto")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}, which is not there"


NAMES = ROOT / "docs" / "reference" / "names.md"
INTRODUCTION = """# Every public name

What `import fedcalib as fc` offers, with the first line of each docstring. Modules such as `fc.metrics` need no import
of their own. Written by `python -m tests.test_docs`; a test keeps it true.
"""


def names_page() -> str:
    """The page of public names, module by module."""
    modules = {"fc": fc, **{f"fc.{row.name}": row.load() for row in ROWS if row.kind == "module"}}
    return INTRODUCTION + "".join(_section(place, module) for place, module in modules.items())


def _section(place: str, module: ModuleType) -> str:
    listed = {row.name for row in ROWS if row.public == place and row.kind != "module"}
    if place != "fc":  # and what the module itself lists; errors and data sets are all for users
        own = (name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__)
        listed |= {*vars(module).get("__all__", () if listed else own)}
    rows = [f"| `{name}` | {_first_line(module, name)} |\n" for name in sorted(listed) if not name.startswith("_")]
    title = "The top" if place == "fc" else f"`{place}`"
    return f"\n## {title}\n\n{_first_line(module)}\n\n| name | what it is |\n|---|---|\n" + "".join(rows)


def _first_line(module: ModuleType, name: str = "") -> str:
    if name == "Flow":  # an alias has no docstring of its own
        return "The conversation of a method."
    return (inspect.getdoc(getattr(module, name) if name else module) or "").split("\n")[0].replace("|", "\\|")


def test_the_page_of_names_is_true() -> None:
    """A public name that no page mentions is a name that nobody finds."""
    assert NAMES.read_text() == names_page(), "write it anew with: python -m tests.test_docs"


if __name__ == "__main__":
    NAMES.write_text(names_page())
