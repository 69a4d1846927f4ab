"""Documents made small: sentences apart from figures, and long lists as a hash with a few numbers."""

from __future__ import annotations

import json
import re
from hashlib import sha256
from typing import Any

import numpy as np

from fedcalib import wire

WORDS = "<words>"
_PROSE = {"warnings", "statement", "summary", "reason", "error", "verdict", "title", "subject", "note", "message"}
_CHANCE = {"at", "head"}  # times, and hashes of times
_EXACT = {"command"}
_LONGEST = 8


def parted(data: Any, path: str = "", key: str = "") -> tuple[Any, dict[str, str]]:
    """Part a JSON document into figures and, by their place, sentences."""
    if isinstance(data, str) and key not in _EXACT and (key in _PROSE or len(data.split()) > 3):
        return WORDS, {path.removeprefix("/"): data}
    if isinstance(data, dict):
        found = {name: parted(item, f"{path}/{name}", name) for name, item in data.items()}
        return {name: one[0] for name, one in found.items()}, _joined(one[1] for one in found.values())
    if isinstance(data, list):
        rows = [parted(item, f"{path}/{index}", key) for index, item in enumerate(data)]
        return [row[0] for row in rows], _joined(row[1] for row in rows)
    return data, {}


def _joined(parts: Any) -> dict[str, str]:
    return {path: text for part in parts for path, text in part.items()}


def condensed(data: Any, key: str = "") -> Any:
    """Make a JSON document small, and leave out what no seed repeats."""
    if key in _CHANCE or key.endswith("seconds"):
        return f"<{key}>"
    if isinstance(data, dict):
        if set(data) == {"array", "shape", "data"}:
            return {"dtype": data["array"], "shape": data["shape"], **summary(wire.decode(data))}
        return {name: condensed(item, name) for name, item in data.items()}
    return _condensed_list(data, key) if isinstance(data, list) else data


def _condensed_list(data: list[Any], key: str) -> Any:
    if len(data) > _LONGEST and all(isinstance(item, int | float) for item in data):
        return summary(np.array(data, dtype=float))
    if len(data) > 3 * _LONGEST:
        return {"count": len(data), "sha256": digest(data), "first": [condensed(item) for item in data[:2]]}
    return [condensed(item, key) for item in data]


def summary(values: np.ndarray) -> dict[str, Any]:
    """Stand for an array."""
    flat = values.reshape(-1).astype(float)
    return {
        "count": flat.size,
        "sha256": digest([repr(one) for one in flat.tolist()]),
        "sum": plain(np.nansum(flat)),
        "first": [plain(one) for one in flat[:3]],
    }


def plain(number: float) -> Any:
    """Write a number as JSON does, or what is none by its name."""
    return float(number) if np.isfinite(number) else repr(float(number))


def digest(data: Any) -> str:
    """Hash a document's canonical text."""
    return sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]


def transcript(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """Stand for a transcript: all of it as a hash, and what was answered."""
    header = lines[0] if lines else {}
    # the name of a release is secret and drawn anew each time
    named = {"run": header.get("run")} if header.get("simulation") else {}
    kept = [{name: item for name, item in line.items() if name != "run"} for line in lines]
    answered = [line for line in lines if line["state"] == "answered"]
    return {
        **named,
        "lines": len(lines),
        "sha256": digest(kept),
        "answers": [[*_told(line["value"]), line["clients"]] for line in answered],
    }


def _told(stored: dict[str, Any]) -> list[Any]:
    """The count, sum and first number of an answer, or the hash of a long one, which has a file of its own."""
    if "file" in stored:
        return [{"sha256": stored["sha256"][:16]}]
    values = np.asarray(wire.decode(stored), dtype=float).reshape(-1)
    return [values.size, plain(values.sum()), *map(plain, values[:1])]


def nameless(path: str, command: int) -> str:
    """Name a file of the state directory by the command that wrote it, not by the hash of its settings."""
    return re.sub(r"^state/[0-9a-f]{32}/", f"state/{command}/", path)
