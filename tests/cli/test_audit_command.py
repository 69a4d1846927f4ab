"""`fedcalib audit`: a table, a document and an exit code."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Shell

SMALL = ("--draws", "5000", "--simulate-seed", "1")


def test_a_model_is_audited_with_its_twin(shell: Shell) -> None:
    said = shell("audit", "--privacy", "laplace", "--epsilon", "2", "--twin", "--format", "json", *SMALL)
    assert said.code == 0
    assert said.json["passes"] is True
    assert [audit["passes"] for audit in said.json["audits"]] == [True] * 3 + [False] * 3
    assert all(audit["claimed"] == 2 and audit["draws"] == 5000 for audit in said.json["audits"])


def test_people_get_a_table(shell: Shell) -> None:
    said = shell("audit", "--privacy", "user", "--epsilon", "2", "--delta", "1e-5", *SMALL)
    assert said.code == 0
    assert "UserGaussian, count" in said.out
    assert "stands" in said.out


def test_an_audit_that_cannot_tell_says_so(shell: Shell) -> None:
    said = shell(
        "audit", "--privacy", "distributed", "--epsilon", "0.1", "--twin", "--draws", "200", "--simulate-seed", "1"
    )
    assert said.code == 0
    assert "unnoticed" in said.err


def test_a_wrong_claim_ends_with_a_code(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedcalib.privacy import source_laplace

    honest = source_laplace.SourceLaplace.mechanism
    monkeypatch.setattr(
        source_laplace.SourceLaplace,
        "mechanism",
        lambda self, *rest: honest(source_laplace.SourceLaplace(2 * self.epsilon), *rest),
    )
    said = shell("audit", "--privacy", "laplace", "--epsilon", "2", *SMALL)
    assert said.code == 1
    assert "is wrong" in said.out


@pytest.mark.parametrize("words", [("--privacy", "secagg"), ("--privacy", "laplace"), ()])
def test_mistakes_are_explained(shell: Shell, words: tuple[str, ...]) -> None:
    assert shell("audit", *words, *SMALL).code == 2
