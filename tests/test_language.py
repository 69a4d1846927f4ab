"""Plain English: what a reader of the code, the docs, the help and the messages should not meet again."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
DIALECT = re.compile(r"(Give|Say|Tell|Hold)\b")
# "bytes a client" for "bytes per client": a count or a plural noun, the article, and what it is counted by
DISTRIBUTIVE = re.compile(
    r"\b(one|two|three|four|five|eight|ten|\d+|bytes|keys|seconds|minutes|records|rows|cells|bins|symbols|numbers|values"
    r"|messages|terms|looks|points|words|labels|temperature|row|file|line|object|value|key|message|bit|coin|level|subfolder)"
    r" an? (client|site|record|class|message|step|unit|cell|bin|line|row|query|question|level|domain|source|run|number"
    r"|block|file|window|round|person|patient|node|month|week|parameter|name|kind|command|idea)\b"
)


def docstrings(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.lineno, ast.get_docstring(node) or ""


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Docstrings, messages and help of a module: all of its string constants."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_docstrings_state_what_they_describe(path: Path) -> None:
    found = [f"{path.name}:{line} {text[:60]}" for line, text in docstrings(path) if DIALECT.match(text)]
    assert not found, found


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_code_says_per_and_not_a(path: Path) -> None:
    found = [
        f"{path.name}:{line} {hit.group()}"
        for line, text in texts(path)
        for hit in DISTRIBUTIVE.finditer(" ".join(text.split()))
    ]
    assert not found, found


# "the model hides them": alone, a model is the classifier
AMBIGUOUS = re.compile(r"(?<![Pp]rivacy )\bmodels? (that )?(hides?|protects?)\b|\bunder (this|the|that) model\b")


@pytest.mark.parametrize("path", [*SOURCES, *PAGES], ids=lambda path: str(path.relative_to(ROOT)))
def test_a_model_is_the_classifier(path: Path) -> None:
    said = (text for _, text in texts(path)) if path.suffix == ".py" else [path.read_text()]
    found = [hit.group() for text in said for hit in AMBIGUOUS.finditer(" ".join(text.split()))]
    assert not found, found


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_pages_say_per_and_not_a(path: Path) -> None:
    found = [hit.group() for hit in DISTRIBUTIVE.finditer(" ".join(path.read_text().split()))]
    assert not found, found
