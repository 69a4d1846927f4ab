"""Scorers: classifiers that clients can run on their own records."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from fedcalib.artifacts.saving import Artifact
from fedcalib.federation import Federation
from fedcalib.records import Records


@dataclass(frozen=True, eq=False)
class Scorer(Artifact):
    """A classifier: it gives records new scores, from columns beside the old ones."""

    @abstractmethod
    def over(self, records: Records) -> Records:
        """Give the same records with this classifier's scores."""

    def across(self, federation: Federation) -> Federation:
        """Let every client score its own records."""
        return Federation(self.over(federation.records), federation.offsets, federation.names)
