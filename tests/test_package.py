"""The package as a whole: its public names, and what importing it costs."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import fedcalib as fc

HEAVY = {
    "torch",
    "matplotlib",
    "pyarrow",
    "scipy",
    "opendp",
    "dp_accounting",
    "flwr",
    "sklearn",
    "pandas",
    "rich",
    "typer",
}


def test_public_names_are_sorted_and_few() -> None:
    assert fc.__all__ == sorted(fc.__all__)
    assert 40 <= len(fc.__all__) <= 55


def test_unknown_names_are_refused() -> None:
    assert not hasattr(fc, "nonsense")
    assert not hasattr(fc.methods, "nonsense")
    assert {"FedBin", "metrics", "__version__"} <= set(dir(fc))


def test_submodules_work_right_after_the_import() -> None:
    code = "import fedcalib as fc; fc.metrics.ece, fc.errors.InputError, fc.query.Query, fc.methods.Weighted, fc.search"
    assert not HEAVY & imported(code)


def imported(code: str) -> set[str]:
    out = subprocess.run(
        [sys.executable, "-c", f"{code}; import sys; print(*sys.modules)"], capture_output=True, text=True, check=True
    )
    return {name.split(".")[0] for name in out.stdout.split()}


def test_import_is_light() -> None:
    assert not HEAVY & imported("import fedcalib")


def test_vocabulary_is_light() -> None:
    """Everything that a run touches before noise or files come in needs numpy only."""
    assert not HEAVY & imported("import fedcalib as fc; fc.run, fc.FedBin, fc.SecAgg, fc.DistributedDP, fc.InProcess")


def test_loading_an_artifact_needs_numpy_only(tmp_path: Path) -> None:
    from fedcalib.artifacts.scaling import Temperature

    path = Temperature(2.0).save(tmp_path / "t.json")
    code = f"import fedcalib, numpy; a = fedcalib.load({str(path)!r}); assert a(numpy.array([0.9])) < 0.9"
    assert not HEAVY & imported(code)


def test_every_import_is_declared() -> None:
    """What is installed only because something else needs it goes away when that something changes its mind."""
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {name: words for name, words in project["optional-dependencies"].items() if name not in ("dev", "bench")}
    declared = {_plain(words) for group in (project["dependencies"], *extras.values()) for words in group}
    absent = {"mlflow": ["mlflow-skinny"], "vantage6": ["vantage6-algorithm-tools"]}  # which need not be installed
    belongs, known = {**absent, **packages_distributions()}, {*sys.stdlib_module_names, "fedcalib"}
    named = {name for path in Path(fc.__file__).parent.rglob("*.py") for name in _imports(path)} - known
    assert "numpy" in named
    assert not {name for name in named if not declared & {_plain(found) for found in belongs.get(name, [name])}}


def _plain(words: str) -> str:
    """Name a distribution without its bounds and extras, as the index compares names."""
    return re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", words)[0]).lower()


def _imports(path: Path) -> set[str]:
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    whence = {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) and not node.level}
    return {name.split(".")[0] for name in plain | whence}


def test_every_class_is_abstract_or_final() -> None:
    """Exceptions are a taxonomy, and whoever writes a protocol or an enumeration means it to be followed."""
    loose = []
    for path in sorted(Path(fc.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not _closed(node):
                loose.append(f"{path.name}: {node.name}")
    assert not loose


def _closed(node: ast.ClassDef) -> bool:
    marks = {ast.unparse(mark).rpartition(".")[2] for mark in node.decorator_list}
    bases = {ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases}
    abstract = any(
        "abstract" in ast.unparse(mark)
        for part in node.body
        if isinstance(part, ast.FunctionDef)
        for mark in part.decorator_list
    )
    open_ended = bases & {"ABC", "Protocol", "Enum", "StrEnum", "Exception", "UserWarning"} or any(
        base.endswith("Error") for base in bases
    )
    return "final" in marks or abstract or bool(open_ended)
