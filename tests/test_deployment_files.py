"""Units, image and compose file: without rights, read-only, and with commands that exist."""

from __future__ import annotations

import configparser
import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from fedcalib.cli import app

FOLDER = Path(__file__).resolve().parents[1] / "deployment"
UNITS = sorted((FOLDER / "systemd").glob("*.service"))
COMPOSE = yaml.safe_load((FOLDER / "compose.yaml").read_text())
CONTAINERFILE = (FOLDER / "Containerfile").read_text()
VARIABLE = re.compile(r"\b(FEDCALIB_[A-Z_]+)\s*[:=]")


def command_of(words: list[str]) -> tuple[Any, list[str]]:
    """The command that words name, and the words after it."""
    command: Any = app.build()
    while words and words[0] in getattr(command, "commands", {}):
        command, words = command.commands[words[0]], words[1:]
    return command, words


def check_words(words: list[str], given: set[str]) -> None:
    """Every flag is one of the command's, and nothing that it needs is missing."""
    command, rest = command_of(words)
    flags = {flag: option for option in command.params for flag in (*option.opts, *option.secondary_opts)}
    stated = {flags[word].name for word in rest if word.startswith("--")}  # a KeyError is a flag that is not there
    needed = {option.name for option in command.params if option.required}
    assert needed <= stated | given, needed - stated - given


def unit(path: Path) -> dict[str, str]:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(path)
    return dict(parser["Service"])


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_units_run_without_rights_and_come_back(path: Path) -> None:
    service = unit(path)
    assert service["User"] == service["Group"] == "fedcalib"
    assert service["Restart"] == "always"
    assert (service["NoNewPrivileges"], service["ProtectSystem"]) == ("yes", "strict")
    assert (service["StateDirectoryMode"], service["UMask"]) == ("0700", "0077")
    assert service["CapabilityBoundingSet"] == ""
    words = shlex.split(service["ExecStart"])
    state = words[words.index("--state") + 1]
    assert state == f"/var/lib/{service['StateDirectory']}"  # the only place that it may write
    told = {name.removeprefix("FEDCALIB_SITE_START_").lower() for name in VARIABLE.findall(path.read_text())}
    check_words(words[1:], told)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_systemd_understands_the_units(path: Path, tmp_path: Path) -> None:
    local = path.read_text().replace("/opt/fedcalib/bin/fedcalib", "/bin/true")
    (tmp_path / path.name).write_text(local)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(tmp_path / path.name)],
        capture_output=True,
        text=True,
        check=False,
    )
    told = [line for line in done.stderr.splitlines() if path.name in line]
    assert not told


@pytest.mark.parametrize("name", COMPOSE["services"])
def test_containers_run_without_rights_on_read_only_mounts(name: str) -> None:
    service = COMPOSE["services"][name]
    assert service["user"].split(":")[0] not in ("0", "root")
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    for mount in service["volumes"]:
        source, target, *mode = mount.split(":")
        assert mode == ["ro"] if source.startswith(".") else target == "/state"
        assert source.startswith(".") or source in COMPOSE["volumes"]
    told = {one.removeprefix("FEDCALIB_SITE_START_").lower() for one in service.get("environment", {})}
    check_words(service["command"], told)


def test_the_image_runs_as_the_user_of_the_compose_file() -> None:
    lines = CONTAINERFILE.splitlines()
    users = [line.split()[1] for line in lines if line.startswith("USER ")]
    assert users == [COMPOSE["x-hardened"]["user"]]
    assert json.loads(next(line for line in lines if line.startswith("ENTRYPOINT")).split(" ", 1)[1]) == ["fedcalib"]
    extras = re.search(r"/build\[(.+?)\]", CONTAINERFILE)
    text = (FOLDER.parent / "pyproject.toml").read_text()
    assert extras is not None and all(f"\n{one} = [" in text for one in extras[1].split(","))


def test_every_option_has_an_environment_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = tmp_path / "keys"
    assert app.run(["certs", str(keys), "north", "south", "west"]) == 0
    (tmp_path / "north.csv").write_text("died,risk\n1,0.9\n0,0.2\n")
    for name, value in {
        "DATA": tmp_path / "north.csv",
        "KEYS": keys / "north",
        "STATE": tmp_path / "state",
        "SERVER": "127.0.0.1:9",
        "LABEL": "died",
        "SCORE": "risk",
        "FORMAT_": "json",
    }.items():
        monkeypatch.setenv(f"FEDCALIB_SITE_CHECK_{name}", str(value))
    assert app.run(["site", "check"]) == 4  # all but the server is fine
    assert (tmp_path / "state").is_dir()


@pytest.mark.skipif(os.geteuid() != 0, reason="is run by an unprivileged user already")
def test_nothing_needs_root(tmp_path: Path) -> None:
    """Children of this process without rights: Python itself may lie where only root may look."""
    tmp_path.chmod(0o777)
    for parent in tmp_path.parents:
        if str(parent).startswith("/tmp/"):
            parent.chmod(parent.stat().st_mode | 0o055)
    (tmp_path / "north.csv").write_text("label,score\n1,0.9\n0,0.2\n")
    (tmp_path / "north.csv").chmod(0o444)
    child = os.fork()
    if child == 0:  # pragma: no cover - another process
        code = 99
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            os.chdir(tmp_path)
            code = app.run(["certs", "keys", "north", "south", "west"])
            words = ["--data", "north.csv", "--keys", "keys/north", "--state", "state", "--server", "127.0.0.1:9"]
            code = code or app.run(["site", "check", *words])
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 4  # all but the server is fine
    assert (tmp_path / "state").stat().st_uid == 65534
    for left in ("state", "keys"):  # a later run of tests without root could not remove them
        shutil.rmtree(tmp_path / left)
