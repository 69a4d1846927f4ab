"""Sites whose records are read batch by batch: the same sums, the same promises, little memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet as pq

import fedcalib as fc
from fedcalib.data import Columns
from fedcalib.data.databases import tables_at
from fedcalib.data.reading import read_tables
from fedcalib.data.streaming import RecordStream
from fedcalib.data.tables import BATCH
from fedcalib.deploy import certificates
from fedcalib.deploy.node import WatchedSite
from fedcalib.errors import InputError, RefusedError, TooFewClients
from fedcalib.query import ClientQuery
from fedcalib.remote.runtime import Remote
from fedcalib.remote.site import read_directory
from fedcalib.remote.streaming import StreamedFederation
from fedcalib.training import SoftmaxRegression
from fedcalib.types import Array
from tests.contract.subjects import METHODS, MODELS, SCHEMAS, name
from tests.databases import postgres
from tests.memory import PRINT_PEAK
from tests.remote.test_node import ALLOW, NAMES, log, places

COLUMNS = Columns(one_site=True)
BATCHES = 3


def scores(count: int, seed: int, classes: int = 2) -> pa.Table:
    rng = np.random.default_rng(seed)
    logits = 2 * rng.normal(size=(count, classes))
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    return pa.table({**{f"logit_{k}": logits[:, k] for k in range(classes)}, "label": labels})


@pytest.fixture(scope="module", params=[2, 4], ids=["binary", "classes"])
def both(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[fc.Federation, RecordStream]:
    """The same records in memory and as a stream of three batches."""
    folder = tmp_path_factory.mktemp("records")
    for part in range(3):
        pq.write_table(scores(900 + part, part, request.param), folder / f"{part}.parquet")
    reading = read_tables(tables_at(str(folder)), COLUMNS, private=True)
    return fc.Federation.of([reading.federation.records]), RecordStream(tables_at(str(folder)), COLUMNS, b"key")


def difference(found: Array, expected: Array) -> float:
    """The largest difference, also between elements of a ring."""
    if found.dtype == np.uint64:
        return float(np.abs((found - expected).view(np.int64)).max(initial=0))
    return float(np.abs(found - expected).max(initial=0))


def has_whole(query: fc.query.Query) -> bool:
    parts = query.parts if isinstance(query, fc.query.Join) else (query,)
    return any(type(part).rounded is not fc.query.Query.rounded for part in parts)


@pytest.mark.parametrize("privacy", MODELS, ids=name)
def test_every_method_gets_the_same_share_from_batches(
    both: tuple[fc.Federation, RecordStream], privacy: fc.privacy.Privacy
) -> None:
    loaded, stream = both
    schema = next(one for one in SCHEMAS if one.classes == loaded.schema.classes)
    compared = 0
    for method in METHODS:
        try:
            agreed = fc.loop.Agreement.of(method, privacy, fc.Everyone(), schema)
        except (InputError, RefusedError):  # this privacy model does not serve it, or it is for other classes
            continue
        for query, mechanism in zip(agreed.plan.queries, agreed.mechanisms, strict=True):
            site = StreamedFederation(stream)
            try:
                site.rehearse(mechanism, query, fc.Simulated(0))
            except RefusedError as error:
                assert "needs all records of a client at once" in str(error)
                assert isinstance(query, ClientQuery)
                continue
            expected = mechanism.gather(query, loaded, fc.Simulated(0))
            found = site.gather(mechanism, query, fc.Simulated(0))
            if isinstance(privacy, fc.LocalDP):  # each record draws its own noise; see below
                assert found.shape == expected.shape
            else:  # in floats a sum depends on its order, by a step of the grid where it is clipped
                exact = mechanism.unit != "client" and found.dtype.kind in "iu"
                cut = isinstance(privacy, fc.SecAgg) and has_whole(query)  # curvature is cut once per batch
                least = BATCHES if cut else 0 if exact else 1 if found.dtype.kind in "iu" else 1e-6
                assert difference(found, expected) <= least
            compared += 1
    assert compared > 3


def test_local_reports_of_a_stream_are_those_of_its_records(tmp_path: Path) -> None:
    pq.write_table(scores(1000, 0), tmp_path / "a.parquet")
    stream = RecordStream(tables_at(str(tmp_path / "a.parquet")), COLUMNS, b"key")
    loaded = read_tables(tables_at(str(tmp_path / "a.parquet")), COLUMNS, private=True).federation
    agreed = fc.loop.Agreement.of(fc.FedBin(), fc.LocalDP(epsilon=4.0), fc.Everyone(), SCHEMAS[0])
    query, mechanism = agreed.plan.queries[0], agreed.mechanisms[0]
    found = StreamedFederation(stream).gather(mechanism, query, fc.Simulated(0))
    assert difference(found, mechanism.gather(query, loaded, fc.Simulated(0))) == 0


def test_a_rehearsal_reads_nothing(both: tuple[fc.Federation, RecordStream]) -> None:
    loaded, stream = both
    agreed = fc.loop.Agreement.of(fc.FedBin(), fc.SecAgg(), fc.Everyone(), fc.Schema(loaded.schema.classes, 5))
    stream.last = None
    StreamedFederation(stream).rehearse(agreed.mechanisms[0], agreed.plan.queries[0], fc.Simulated(0))
    assert stream.last is None


@pytest.fixture
def streams(tmp_path: Path) -> dict[str, WatchedSite]:
    certificates.make(tmp_path / "keys", NAMES, ["localhost"])
    sites = {}
    for seed, site in enumerate(NAMES):
        pq.write_table(scores(400, seed), tmp_path / f"{site}.parquet")
        (tmp_path / f"{site}.toml").write_text(ALLOW)
        own = {**places(tmp_path, site), "data-path": str(tmp_path / f"{site}.parquet"), "stream": "yes"}
        sites[site] = WatchedSite(own)
    return sites


def remote(folder: Path, sites: dict[str, WatchedSite]) -> Remote:
    from tests.remote.places import LocalTransport

    transport = LocalTransport({site: one.handle for site, one in sites.items()})
    return Remote(transport, read_directory(folder / "keys" / "directory.json"))


def in_process(folder: Path) -> fc.InProcess:
    return fc.InProcess(fc.read({site: str(folder / f"{site}.parquet") for site in NAMES}))


def test_a_run_over_streams_is_that_over_files(tmp_path: Path, streams: dict[str, WatchedSite]) -> None:
    found = fc.run(fc.FedBBQ(), remote(tmp_path, streams), fc.SecAgg())
    expected = fc.run(fc.FedBBQ(), in_process(tmp_path), fc.SecAgg())
    assert found.artifact == expected.artifact
    private = fc.run(fc.FedBin(), remote(tmp_path, streams), fc.DistributedDP(epsilon=1.0))
    assert private.privacy.epsilon == pytest.approx(1.0)


def test_what_needs_a_whole_client_is_refused_before_anybody_pays(
    tmp_path: Path, streams: dict[str, WatchedSite]
) -> None:
    training = fc.methods.FedAvg(SoftmaxRegression(2, 2), rounds=1, column=None)
    with pytest.raises((TooFewClients, RefusedError)):
        fc.run(training, remote(tmp_path, streams), fc.SecAgg())
    assert "LocalUpdate needs all records of a client at once" in str(log(tmp_path, "north")[-1]["reason"])


def test_a_database_that_changes_in_the_middle_of_a_run_ends_it(
    tmp_path: Path, streams: dict[str, WatchedSite]
) -> None:
    with postgres() as cluster:
        cluster.store("scores", scores(400, 9))
        own = {**streams["west"].places, "data-path": cluster.uri(), "query": "SELECT * FROM scores"}
        del own["stream"]  # a database is streamed without being told to
        west = WatchedSite(own)
        fc.run(fc.FedBin(), remote(tmp_path, {**streams, "west": west}), fc.SecAgg())
        changed = []

        def handle(action: str, text: str) -> str:
            if action == "ask" and not changed:
                changed.append(cluster.run("DELETE FROM scores WHERE logit_0 > 3"))
            return west.handle(action, text)

        class Changing:
            places = west.places

            def handle(self, action: str, text: str) -> str:
                return handle(action, text)

        sites = {**streams, "west": Changing()}
        with pytest.raises(TooFewClients, match="'west' changed its records in the middle of the run"):
            fc.run(fc.FedBin(bins=7), remote(tmp_path, sites), fc.SourceLaplace(epsilon=0.5))  # type: ignore[arg-type]
        fc.run(fc.FedBin(bins=6), remote(tmp_path, sites), fc.SourceLaplace(epsilon=0.5))  # type: ignore[arg-type]
        assert [line["outcome"] for line in log(tmp_path, "west") if line["action"] == "ask"][-2:] == [
            "refused",
            "answered",
        ]


def test_memory_does_not_grow_with_the_number_of_records(tmp_path: Path) -> None:
    code = f"""
import sys
import fedcalib as fc
from fedcalib.data import Columns
from fedcalib.data.databases import tables_at
from fedcalib.data.streaming import RecordStream
from fedcalib.loop import Agreement
from fedcalib.remote.streaming import StreamedFederation
agreed = Agreement.of(fc.FedBBQ(), fc.SecAgg(), fc.Everyone(), fc.Schema(2, 5))
site = StreamedFederation(RecordStream(tables_at(sys.argv[1]), Columns(one_site=True), b"key"))
site.gather(agreed.mechanisms[0], agreed.plan.queries[0], fc.Simulated(0))
{PRINT_PEAK}
"""
    peaks = []
    for count in (BATCH, 12 * BATCH):
        path = tmp_path / f"{count}.parquet"
        pq.write_table(scores(count, 0), path, row_group_size=BATCH)
        done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
        peaks.append(int(done.stdout.split()[-1]))
    more = 11 * BATCH * 3 * 8 / 1024  # KiB that so many more records would take
    assert peaks[1] - peaks[0] < 0.7 * more
