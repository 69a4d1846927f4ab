"""The files that guard a change: hooks before a commit, and the workflow after a push."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*_*.yml"))


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def steps() -> list[str]:
    jobs = read(ROOT / ".github" / "workflows" / "test.yml")["jobs"].values()
    return [step["run"] for job in jobs for step in job["steps"] if "run" in step]


def targets() -> set[str]:
    return set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))


def test_the_workflow_calls_targets_that_exist() -> None:
    called = [words.split()[1] for words in steps()]
    assert all(words.startswith("make ") for words in steps())
    assert {"lint", "types", "unit", "wheel"} == set(called) <= targets()


def test_make_test_is_what_the_workflow_runs() -> None:
    test = re.search(r"^test: (.+)\n\t.+ -j 2 (.+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    assert test is not None and {*test[1].split(), *test[2].split()} == {words.split()[1] for words in steps()} - {
        "wheel"
    }
    assert (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()[-1] == "make test"


def test_the_workflow_tries_every_python_that_is_claimed() -> None:
    matrix = read(ROOT / ".github" / "workflows" / "test.yml")["jobs"]["tests"]["strategy"]["matrix"]["python"]
    claimed = [words.rpartition(" ")[2] for words in PROJECT["classifiers"] if ":: Python :: 3." in words]
    assert matrix == claimed


def test_hooks_run_the_versions_of_the_project() -> None:
    hooks = [hook for repo in read(ROOT / ".pre-commit-config.yaml")["repos"] for hook in repo["hooks"]]
    assert [hook["id"] for hook in hooks] == ["ruff", "ruff-format", "mypy"]
    for hook in hooks:
        program = hook["entry"].split()[0].removeprefix(".venv/bin/")
        assert any(words.startswith(program) for words in PROJECT["optional-dependencies"]["dev"])


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.stem)
def test_issue_forms_ask_questions(form: Path) -> None:
    content = read(form)
    assert content["name"] and content["description"]
    names = [part["id"] for part in content["body"] if part["type"] != "markdown"]
    assert names and len(names) == len(set(names))
