"""The controller of the tests of NVIDIA FLARE."""

from __future__ import annotations

from pathlib import Path

from fedcalib.deploy.nvflare import FlareController
from fedcalib.remote.sites import Transport
from tests.engines.federation import work


class Everything(FlareController):
    """Runs every method."""

    def __init__(self, folder: str, classes: int) -> None:
        super().__init__()
        self.folder, self.classes = folder, classes

    def work(self, transport: Transport) -> None:
        work(transport, Path(self.folder), self.classes)
