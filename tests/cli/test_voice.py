from __future__ import annotations

import io
import subprocess
import sys
import time

import pytest

from fedcalib.cli.voice import Voice
from fedcalib.workflows.documents import TextTable


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_long_task_shows_a_bar_to_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream, shown in ((Terminal(), True), (io.StringIO(), False)):
        monkeypatch.setattr(sys, "stderr", stream)
        with Voice(as_json=False).progress("reading") as at:
            at.__self__.begun = time.monotonic() - 2
            at(3, 10)
        assert ("reading" in stream.getvalue()) == shown


def test_a_short_task_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    with Voice(as_json=False).progress("reading") as at:
        at(3, 10)
    assert stream.getvalue() == ""


def test_tables_show_brackets_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    Voice(as_json=False).result({}, [TextTable("", ("name", "value"), (("[red]", "[0, 1]"),))])
    out = capsys.readouterr().out
    assert "[red]" in out
    assert "[0, 1]" in out


def test_a_narrow_terminal_cuts_no_digit_off(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, figure = Terminal(), "0.8529 (0.8035 to 0.8916)"
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr(sys, "stdout", stream)
    name = "x" * 100
    Voice(as_json=False).result({}, [TextTable("", ("metric", "a", "b", "c"), ((name, figure, figure, figure),))])
    assert stream.getvalue().count("0.8529") == 3
    assert stream.getvalue().count("x") == 100


def test_importing_the_entry_point_loads_nothing_heavy() -> None:
    code = "import sys, fedcalib.cli; print([m for m in ('typer', 'rich', 'pyarrow', 'scipy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
