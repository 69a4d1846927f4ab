"""Notebooks in examples/ are executed: their stored outputs are what the cells print and return.

`python -m tests.test_notebooks` executes them again and stores what they show. It needs no Jupyter.
"""

from __future__ import annotations

import ast
import json
import warnings
from contextlib import chdir, redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
NOTEBOOKS = sorted(EXAMPLES.rglob("*.ipynb"))


def executed(cells: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """What each code cell shows, as a notebook stores it."""
    space: dict[str, Any] = {"__name__": "__main__"}
    return [_shown("".join(cell["source"]), space, number) for number, cell in enumerate(cells, 1)]


def _shown(code: str, space: dict[str, Any], number: int) -> list[dict[str, Any]]:
    *first, last = ast.parse(code).body
    final = last if isinstance(last, ast.Expr) and not code.rstrip().endswith(";") else None
    printed = StringIO()
    with redirect_stdout(printed):
        exec(compile(ast.Module(first if final else [*first, last], []), f"cell {number}", "exec"), space)
        value = eval(compile(ast.Expression(final.value), f"cell {number}", "eval"), space) if final else None
    outputs = [{"output_type": "stream", "name": "stdout", "text": printed.getvalue().splitlines(True)}]
    if value is not None:
        data = {"text/plain": repr(value).splitlines(True)}
        if hasattr(value, "_repr_html_"):
            data["text/html"] = value._repr_html_().splitlines(True)
        result = {"output_type": "execute_result", "execution_count": number, "metadata": {}, "data": data}
        outputs.append(result)
    return [one for one in outputs if one.get("text") or "data" in one]


def run(path: Path) -> dict[str, Any]:
    """The notebook with the outputs that its cells have now."""
    notebook: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    with TemporaryDirectory() as folder, chdir(folder), warnings.catch_warnings():
        warnings.simplefilter("error")
        for number, (cell, outputs) in enumerate(zip(cells, executed(cells), strict=True), 1):
            cell |= {"outputs": outputs, "execution_count": number}
    return notebook


def words(notebook: dict[str, Any]) -> list[list[str]]:
    """The text of the outputs of each code cell; HTML is for eyes."""
    return [
        ["".join(one.get("text") or one["data"]["text/plain"]) for one in cell["outputs"]]
        for cell in notebook["cells"]
        if cell["cell_type"] == "code"
    ]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_shows_what_it_computes(path: Path) -> None:
    stored = json.loads(path.read_text(encoding="utf-8"))
    assert words(run(path)) == words(stored), "execute it again with: python -m tests.test_notebooks"
    assert sum(map(len, words(stored))) >= 5


def test_there_is_a_notebook() -> None:
    assert NOTEBOOKS


if __name__ == "__main__":
    for each in NOTEBOOKS:
        each.write_text(json.dumps(run(each), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
