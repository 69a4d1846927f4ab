"""Docstrings of public names: each has a summary line, and every example in them runs."""

from __future__ import annotations

import doctest
from collections.abc import Iterator
from importlib import import_module
from inspect import getdoc, isabstract, isclass, isfunction, signature
from pathlib import Path
from types import ModuleType

import pytest

import fedcalib as fc

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
PUBLIC = [
    "errors",
    "query",
    "search",
    "artifacts",
    "audit",
    "planning",
    "training",
    "metrics",
    "data",
    "datasets",
    "registry",
    "workflows",
    "export",
]


def modules() -> Iterator[str]:
    root = Path(fc.__file__).parent
    for path in sorted(root.rglob("*.py")):
        name = ".".join(("fedcalib", *path.relative_to(root).with_suffix("").parts)).removesuffix(".__init__")
        if path.stem != "__main__":  # importing it runs the command
            yield name


def imported(name: str) -> ModuleType:
    try:
        return import_module(name)
    except fc.errors.MissingExtra as error:
        pytest.skip(str(error))
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("fedcalib"):
            raise
        pytest.skip(f"{name} needs {error.name}, which is not installed")


@pytest.mark.parametrize("name", modules())
def test_examples_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = imported(name)
    monkeypatch.chdir(tmp_path)  # an example may save a file
    assert doctest.testmod(module, optionflags=FLAGS).failed == 0


@pytest.mark.parametrize("name", ["", *PUBLIC])
def test_public_names_have_a_summary_line(name: str) -> None:
    module = imported(f"fedcalib.{name}" if name else "fedcalib")
    public = {word: getattr(module, word) for word in getattr(module, "__all__", vars(module))}
    bare = [word for word, value in public.items() if _ours(word, value) and not _summarised(word, value)]
    assert not bare


@pytest.mark.parametrize("word", fc.__all__)
def test_names_at_the_top_have_parameters_and_an_example(word: str) -> None:
    value = getattr(fc, word)
    text = getdoc(value) or ""
    if isclass(value) or isfunction(value):
        assert ">>>" in text
    if isfunction(value) or (isclass(value) and not isabstract(value) and signature(value).parameters):
        assert "Parameters\n-------" in text


def _ours(word: str, value: object) -> bool:
    whence = getattr(value, "__module__", None) or ""
    return not word.startswith("_") and (isclass(value) or isfunction(value)) and whence.startswith("fedcalib")


def _summarised(word: str, value: object) -> bool:
    """A dataclass without a docstring is given its signature as one, which is no summary."""
    summary = (value.__doc__ or "").partition("\n")[0]
    return summary.endswith((".", "?", ":")) and not summary.startswith(f"{word}(")
