"""Re-create the CSV files of one source: `make reproduce SOURCE=000`, or `python -m benchmarks.reproduce 000`.

The stored files of the source are set aside first, in benchmarks/out/before, so that nothing is taken over from them.
A run that was stopped goes on where it was. At the end the numbers of docs/reproduction.md are computed from the new
files and set beside the stored ones. `--quick` runs a small part into benchmarks/out/quick, in less than ten minutes,
and compares it with the stored rows of the same cases.
"""

from __future__ import annotations

import argparse
import csv
import io
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.reproduction.steps import SOURCES, Compared, Row, Step

HERE = Path(__file__).parent
SHARED = HERE.parents[1] / "shared" / "data"
FOUND = {"mnist": SHARED / "mnist_writers", "shakespeare": SHARED / "shakespeare_roles"}


def read(path: Path) -> list[Row]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def called(step: Step, arguments: tuple[str, ...], places: dict[str, str]) -> bool:
    """Run a step, or say which data it lacks."""
    try:
        filled = [word.format(**places) for word in arguments]
    except KeyError as missing:
        print(f"left out: {step.module} needs --data {missing.args[0]}=DIRECTORY", flush=True)
        return False
    print(f"== {step.module} {' '.join(filled)}", flush=True)
    subprocess.run([sys.executable, "-m", f"benchmarks.{step.module}", *filled], check=True)
    return True


def quick(source: str, places: dict[str, str]) -> bool:
    """Run the small part into a folder of its own and compare it with the stored rows."""
    folder = HERE / "out" / "quick" / source
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    found = []
    for step in SOURCES[source]:
        if not step.quick or step.compared is None:
            continue
        if called(step, step.quick, {**places, "out": str(folder)}):
            found.append(agrees(step.compared, folder))
    if not found:
        print("Nothing was compared.", flush=True)
    return bool(found) and all(found)


def agrees(wanted: Compared, folder: Path) -> bool:
    fresh, stored = read(folder / Path(wanted.file).name), read(HERE / wanted.file)
    compared, near = wanted.judged(fresh, stored)
    good = compared > 0 and near >= wanted.share * compared
    limits = f"{wanted.absolute:g} or {wanted.relative:.0%}"
    verdict = "agrees" if good else "DIFFERS"
    print(
        f"{wanted.file}: {near} of {compared} values within {limits}, {wanted.share:.0%} wanted: {verdict}", flush=True
    )
    return good


def set_aside(source: str, places: dict[str, str]) -> None:
    """Move the stored files away, once per reproduction, so that nothing is taken over from them."""
    before = HERE / "out" / "before" / source
    if before.exists():
        print(f"Going on with a reproduction that was stopped; the files from before it are in {before}.", flush=True)
        return
    before.mkdir(parents=True)
    for step in SOURCES[source]:
        if all(word.strip("{}") in places for word in _wanted(step.full)):
            folder = step.module.split(".")[0]
            for name in filter(lambda name: (HERE / name).exists(), (*step.writes, f"{folder}/out")):  # and transcripts
                shutil.move(HERE / name, before / name.replace("/", "-"))


def _wanted(arguments: tuple[str, ...]) -> list[str]:
    """The data that arguments name, like mnist."""
    return [word[word.index("{") + 1 : word.index("}")] for word in arguments if "{" in word]


def full(source: str, places: dict[str, str]) -> bool:
    """Everything from nothing, then the page's numbers beside the stored ones."""
    set_aside(source, places)
    for step in SOURCES[source]:
        called(step, step.full, places)
    moved = changed(source)
    for line in moved:
        print(line)
    print(f"{len(moved)} numbers of docs/reproduction.md changed by more than a tenth.")
    before = HERE / "out" / "before"
    (before / source).rename(before / f"{source}-{time.strftime('%Y%m%d-%H%M%S')}")
    return True


def changed(source: str) -> list[str]:
    """Which numbers of the page the new files move by more than a tenth."""
    from benchmarks.reproduction.page import FIGURES, figures

    def numbers(text: str) -> dict[tuple[str, ...], float]:
        rows = list(csv.DictReader(io.StringIO(text)))
        return {(row["item"], row["part"], row["name"]): float(row["value"]) for row in rows if row["source"] == source}

    old, new = numbers(FIGURES.read_text()), numbers(figures())
    return [
        f"{', '.join(name)}: {old[name]:g} before, {value:g} now"
        for name, value in new.items()
        if name in old and abs(value - old[name]) > 0.1 * abs(old[name])
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", choices=SOURCES)
    parser.add_argument("--quick", action="store_true", help="a small part, compared with the stored rows")
    parser.add_argument(
        "--data", action="append", default=[], help="NAME=DIRECTORY, of mnist, fashion, cifar10, shakespeare"
    )
    told = parser.parse_args()
    places = {name: str(path) for name, path in FOUND.items() if path.exists()}
    places |= dict(pair.split("=", 1) for pair in told.data)
    began = time.monotonic()
    run: Callable[[str, dict[str, str]], bool] = quick if told.quick else full
    good = run(told.source, places)
    print(f"Source {told.source}: {(time.monotonic() - began) / 60:.1f} minutes.")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
