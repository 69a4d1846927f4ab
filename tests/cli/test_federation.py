"""The commands of servers and sites: keys, refusals, previews and the log, without starting a process."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

import fedcalib as fc
from fedcalib.cli import app
from fedcalib.cli import voice as exits
from fedcalib.deploy.job import Job
from tests.contract.subjects import federation
from tests.remote.places import places

pytest.importorskip("flwr")


def run(*words: object) -> int:
    return app.run([str(word) for word in words])


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    assert run("certs", tmp_path / "keys", "north", "south", "west") == exits.FINE
    return tmp_path / "keys"


def write_job(folder: Path, **fields: object) -> Path:
    lines = {"method": "fed-bbq", "privacy": "distributed", "epsilon": 1.0, "sites": 3, **fields}
    path = folder / "job.toml"
    path.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in lines.items()))
    return path


def test_keys_are_private_signed_and_never_overwritten(keys: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from cryptography import x509

    for name in ("ca.key", "server.key", "north/node", "north/identity.json"):
        assert stat.S_IMODE((keys / name).stat().st_mode) == 0o600
    authority, server = (
        x509.load_pem_x509_certificate((keys / name).read_bytes()) for name in ("ca.crt", "server.pem")
    )
    server.verify_directly_issued_by(authority)
    assert (keys / "north" / "node.pub").read_text().startswith("ecdsa-sha2-nistp384 ")
    assert run("certs", keys, "north") == exits.USAGE
    assert "never overwritten" in capsys.readouterr().err


def test_folders_of_state_are_for_their_owner_alone(keys: Path, tmp_path: Path) -> None:
    for state in (tmp_path / "there", tmp_path / "new"):
        if state.name == "there":
            state.mkdir(mode=0o755)
        assert run("server", "start", "--keys", keys, "--state", state, "--print") == exits.FINE
        assert stat.S_IMODE(state.stat().st_mode) == 0o700
    assert stat.S_IMODE((keys / "north").stat().st_mode) == 0o700


def test_insecurity_has_to_be_spelled_out(keys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = ["--state", tmp_path / "state", "--print"]
    assert run("server", "start", *state) == exits.USAGE
    assert "use --insecure to run without" in capsys.readouterr().err
    assert run("server", "start", "--insecure", *state) == exits.FINE
    assert "--insecure" in capsys.readouterr().out
    assert run("server", "start", "--keys", keys, *state) == exits.FINE
    said = capsys.readouterr().out
    assert "--enable-supernode-auth" in said
    assert "--ssl-certfile" in said
    assert "--insecure" not in said


def test_a_site_prints_the_command_behind_it(keys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "north.csv"
    data.write_text("score,label\n0.5,1\n0.4,0\n")
    words = ["site", "start", "--data", data, "--keys", keys / "north", "--state", tmp_path / "s", "--print"]
    assert run(*words) == exits.USAGE  # the usual engine has no command of Flower behind it
    words += ["--engine", "supernode"]
    assert run(*words) == exits.FINE
    said = capsys.readouterr().out
    assert f'data-path="{data}"' in said
    assert "--auth-supernode-private-key" in said
    publishers = tmp_path / "publishers.yaml"
    publishers.write_text("{}\n")
    assert run(*words, "--trusted", publishers) == exits.FINE
    assert "--trusted-entities" in capsys.readouterr().out
    data.write_text("score,label\n0.5,1\n0.4,much\n")  # told here, and never to the server
    assert run(*words) == exits.USAGE
    assert "much" in capsys.readouterr().err
    bad = tmp_path / "policy.toml"
    bad.write_text("epsilon = 3\n")
    assert run(*words, "--policy", bad) == exits.USAGE


def test_a_job_is_previewed_against_the_policy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = write_job(tmp_path)
    assert run("site", "preview", job, "--format", "json") == exits.FINE
    told = json.loads(capsys.readouterr().out)
    assert told["allowed"]
    assert told["epsilon"] == pytest.approx(1.0)
    assert [one["mechanism"] for one in told["asked"]] == ["PolyaShares"]
    (tmp_path / "policy.toml").write_text("epsilon_a_run = 0.1\n")
    assert run("site", "preview", job, "--policy", tmp_path / "policy.toml", "--format", "json") == exits.FINE
    told = json.loads(capsys.readouterr().out)
    assert not told["allowed"]
    assert "Expected epsilon up to 0.1 per run" in told["reason"] or "per query" in told["reason"]


def test_the_default_policy_is_the_printed_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from fedcalib.remote.policy import Policy

    assert run("site", "policy") == exits.FINE
    (tmp_path / "policy.toml").write_text(capsys.readouterr().out)
    assert Policy.read(tmp_path / "policy.toml") == Policy()


def test_the_log_is_shown_and_an_edit_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fc.run(fc.FedBin(), places(federation(2), folder=tmp_path).runtime(), fc.SecAgg())
    words = ["site", "log", "--state", tmp_path / "site-00", "--verify"]
    assert run(*words) == exits.FINE
    assert "Every line is as it was written" in capsys.readouterr().err
    log = tmp_path / "site-00" / "log.jsonl"
    log.write_text(log.read_text().replace('"answered"', '"refused"', 1))
    assert run(*words) == exits.USAGE
    assert "Expected line 1" in capsys.readouterr().err


def test_a_job_travels_as_text_and_keeps_its_name(tmp_path: Path) -> None:
    job = Job.read(write_job(tmp_path, measure=True, dropout=0.25, sites=8))
    assert Job.unpack(job.pack()) == job
    assert Job.unpack(job.pack()).key == job.key
    assert Job.read(write_job(tmp_path, name="second")).key != Job.read(write_job(tmp_path)).key


@pytest.mark.parametrize(
    "fields",
    [{"method": "nothing"}, {"privacy": "none"}, {"sites": 2}, {"epsilon": -1.0}, {"colour": "red"}, {"sites": "3"}],
)
def test_a_wrong_job_is_told_at_once(fields: dict[str, object], tmp_path: Path) -> None:
    assert run("site", "preview", write_job(tmp_path, **fields)) == exits.USAGE
