"""What `fedcalib evaluate` does: measure all sites together, and single ones where the model shows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

from fedcalib.artifacts.calibrator import Calibrator
from fedcalib.artifacts.client_errors import ClientErrors
from fedcalib.artifacts.metrics_report import MetricsReport
from fedcalib.artifacts.saving import load
from fedcalib.artifacts.score_curves import Curves
from fedcalib.cli import documents, single_sites, state
from fedcalib.cli.budget import for_units
from fedcalib.cli.phases import Conductor, Phase
from fedcalib.cli.request import DataRequest, PrivacyRequest
from fedcalib.cli.spending import Purse
from fedcalib.cli.voice import Voice
from fedcalib.cohort import FEWEST_RECORDS, Participation
from fedcalib.errors import InputError
from fedcalib.federation import Federation
from fedcalib.loop import run
from fedcalib.method import Method
from fedcalib.methods.federated_metrics import FederatedMetrics
from fedcalib.methods.per_client_ece import PerClientECE
from fedcalib.methods.score_curves import ScoreCurves
from fedcalib.methods.together import Together
from fedcalib.planning.suited import suited_tree
from fedcalib.privacy.model import Spending
from fedcalib.privacy.open import Open
from fedcalib.runtimes.in_process import InProcess


@final
@dataclass(frozen=True)
class Evaluation:
    """Everything that an evaluation was told."""

    privacy: PrivacyRequest
    participation: Participation
    data: DataRequest
    files: tuple[Path, ...]
    calibrator: Path | None
    seed: int | None
    purse: Purse
    voice: Voice
    curves: bool = False  # a binary classifier's curves as well, within the same budget
    per_client: bool = False  # the usual client's own error as well, within the same budget

    @property
    def phase(self) -> Phase[Any]:
        """Say what is asked."""
        model = self.privacy.model()
        if self.per_client and model.budget is not None and model.budget.unit == "record":
            raise InputError(
                f"Expected --per-client with a model that hides whole clients or none (open, secagg, user), found "
                f"'{self.privacy.word}': a client's own error is a fact about the client, and this model hides records."
            )
        curves = (ScoreCurves(suited_tree(model)),) if self.curves else ()
        methods: tuple[Method[Any], ...] = (FederatedMetrics(), *curves, *((PerClientECE(),) * self.per_client))
        return Phase("evaluation", methods[0] if len(methods) == 1 else Together(methods), model, self.participation)

    def key(self, settings: Mapping[str, Any]) -> str:
        """Name this command for its state directory."""
        also = () if self.calibrator is None else (self.calibrator,)
        return state.key("evaluate", settings, (*self.files, *also))

    def records(self, kept: state.State) -> tuple[Federation, tuple[str, ...]]:
        """Read the files, and calibrate the scores if a calibrator was given."""
        map_ = None if self.calibrator is None else load_calibrator(self.calibrator)
        federation, warnings = self.data.read(self.files, kept, self.privacy.model().private)
        if map_ is None:
            return federation, warnings
        return replace(federation, records=map_.over(federation.records)), warnings

    def measure(self, federation: Federation, kept: state.State) -> tuple[dict[str, Any], Found]:
        """Ask, and put the answer into plain data too."""
        self.purse.pay(kept, self.phase.rehearse(federation.schema).spending)
        conductor = Conductor(kept, self.seed, self.voice, self.purse)
        found = self._apart(federation, conductor) or self._whole(federation, conductor)
        conductor.tell()
        document = {
            "method": "federated-metrics",
            **documents.counts(federation, self.privacy.model()),
            "privacy": documents.spending(for_units(found.spent, self.data.columns.unit)),
            "metrics": documents.metrics(found.report),
            "per_site": found.sites,
            "per_client": None if found.own is None else found.own.to_json(),
            "warnings": [
                *documents.missing(found.report, federation.schema.classes),
                *self._unseen(found.sites),
                *(() if found.own is None else found.own.warnings),
            ],
            "replayed": conductor.replayed,
        }
        return document, found

    def _unseen(self, sites: list[dict[str, Any]] | None) -> list[str]:
        """Say which sites are not shown, and why."""
        if sites is None:
            return [f"Single sites are left out: the model '{self.privacy.word}' hides them."]
        hidden = sum(site["metrics"] is None for site in sites)
        if not hidden:
            return []
        few = f"fewer than {FEWEST_RECORDS} records"
        if self.privacy.model().private:
            return [f"Some sites are not shown: {few} as far as the noise tells."]
        return [f"{hidden} of {len(sites)} sites are not shown: {few}."]

    def _apart(self, federation: Federation, conductor: Conductor) -> Found | None:
        """Ask site by site, where the server sees each noisy answer anyway."""
        if not single_sites.visible(self.phase, federation.schema):
            return None
        results = single_sites.ask_each(self.phase, federation, conductor)
        whole = _parts(single_sites.together(self.phase, results, federation.schema))
        rows = [single_sites.row(federation.name(k), _parts(one.artifact)[0]) for k, one in enumerate(results)]
        return Found(single_sites.spending(results), rows, *whole)

    def _whole(self, federation: Federation, conductor: Conductor) -> Found:
        """Ask all sites at once; where nothing is hidden, look at each one too."""
        result = conductor.run(self.phase, federation)
        whole = _parts(result.artifact)
        if not isinstance(self.privacy.model(), Open):
            return Found(result.privacy, None, *whole)
        with self.voice.meter("sites") as meter:
            rows = []
            for index in range(len(federation)):
                rows.append(_site(federation, index))
                meter.at(index + 1, len(federation))
        return Found(result.privacy, rows, *whole)


@final
@dataclass(frozen=True, eq=False)
class Found:
    """What was measured, of all sites and of each where they can be seen, and what it cost."""

    spent: Spending
    sites: list[dict[str, Any]] | None
    report: MetricsReport
    curves: Curves | None
    own: ClientErrors | None


def _parts(artifact: Any) -> tuple[MetricsReport, Curves | None, ClientErrors | None]:
    """Tell the metrics from the curves and from clients' own errors, where these were asked too."""
    parts = artifact if isinstance(artifact, tuple) else (artifact,)
    curves = next((part for part in parts if isinstance(part, Curves)), None)
    return parts[0], curves, next((part for part in parts if isinstance(part, ClientErrors)), None)


def _site(federation: Federation, index: int) -> dict[str, Any]:
    records = federation.client(index)
    if len(records) < FEWEST_RECORDS:
        return {"site": federation.name(index), "records": None, "metrics": None}
    result = run(FederatedMetrics(), InProcess(Federation.of([records])), Open())
    return {
        "site": federation.name(index),
        "records": len(records),
        "metrics": documents.metrics(result.artifact),
    }


def load_calibrator(path: Path) -> Calibrator:
    """Read a calibrator, or say what the file holds instead."""
    artifact = load(path)
    if not isinstance(artifact, Calibrator):
        raise InputError(f"Expected a calibrator in {path}, found a {type(artifact).__name__}.")
    return artifact
