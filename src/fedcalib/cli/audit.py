"""`fedcalib audit`: what a privacy model is seen to give away, against what it claims."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from fedcalib.cli import options
from fedcalib.cli import voice as exits
from fedcalib.cli.options import privacy_model
from fedcalib.cli.voice import Voice
from fedcalib.workflows.documents import TextTable

if TYPE_CHECKING:
    from fedcalib.audit import Audit


def audit(
    *,
    privacy: options.Model = None,
    epsilon: options.Epsilon = None,
    delta: options.Delta = None,
    colluding: options.Colluding = None,
    draws: Annotated[int, Option(help="Releases with the unit, and as many without it.", min=100)] = 100_000,
    confidence: Annotated[float, Option(help="How sure a bound is to hold.")] = 1 - 1e-6,
    clients: Annotated[int, Option(help="How many clients share the noise.", min=1)] = 3,
    twin: Annotated[
        bool, Option("--twin", help="Audit a twin with half the noise too: the audit should notice.")
    ] = False,
    simulate: options.SimulateSeed = None,
    seed: options.OldSeed = None,
    format_: options.Shape = options.Format.TEXT,
    config: options.Config = None,
    debug: options.Debug = False,
) -> int:
    """Look for proof that a privacy model protects less than it claims; end with code 1 if there is any."""
    from fedcalib.audit import audit_model
    from fedcalib.randomness import Secure, Simulated

    voice = Voice(format_ is options.Format.JSON)
    model = privacy_model(privacy, epsilon, delta, colluding=colluding)
    source = Secure() if simulate is None else Simulated(simulate)
    told: dict[str, Any] = {"draws": draws, "confidence": confidence, "clients": clients, "randomness": source}
    honest = audit_model(model, **told)
    broken = audit_model(model, twin=True, **told) if twin else []
    document = {"passes": all(one.passes for one in honest), "audits": [_written(one) for one in [*honest, *broken]]}
    voice.result(document, [_table([*honest, *broken])])
    if broken and any(one.passes for one in broken):
        voice.warn("a twin with half the noise went unnoticed: take more draws before trusting this audit.")
    return exits.FINE if document["passes"] else exits.BUG


def _written(audit: Audit) -> dict[str, Any]:
    return {**asdict(audit), "passes": audit.passes, "power": audit.power}


def _table(audits: list[Audit]) -> TextTable:
    columns = ("what was audited", "claims", "at least", "share", "the claim")
    rows = tuple(
        (
            *(one.subject, f"{one.claimed:.4g}", f"{one.lower_epsilon:.4f}", f"{one.power:.2f}"),
            "stands" if one.passes else "is wrong",
        )
        for one in audits
    )
    first = audits[0]
    title = f"Epsilon by {first.draws:,} releases with the unit and without it, confidence {first.confidence:.6g}"
    return TextTable(title, columns, rows)
