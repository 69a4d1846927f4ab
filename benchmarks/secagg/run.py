"""Bytes and CPU seconds of secure aggregation, beside a plain sum and beside Flower's SecAgg+.

    OMP_NUM_THREADS=1 python benchmarks/secagg/run.py            # everything, about seven minutes of one core
    OMP_NUM_THREADS=1 python benchmarks/secagg/run.py --dry --clients 10 50 --words 1000

Writes sums.csv (one line for each number of clients and words), stages.csv (the same by stage) and flower.csv.
"""

from __future__ import annotations

import argparse
import base64
import csv
import json
import math
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "src")]

from ours import Federation  # noqa: E402

from fedcalib.secagg import SetupPlan, Slot  # noqa: E402
from fedcalib.secagg.crypto import MaskedSum  # noqa: E402

CLIENTS = (10, 50, 100, 500, 1000)
WORDS = (1_000, 10_000, 100_000)
PEER_CLIENTS = 50


def measure(count: int, length: int, lost: int, text: bool = True) -> Federation:
    """Run one sum and check it to the last bit."""
    federation = Federation(count, length, lost, text)
    total = federation.run()
    if not np.array_equal(total.words, federation.expected()):
        raise SystemExit(f"the sum over {count} clients is wrong")
    return federation


def seconds(federation: Federation) -> float:
    return sum(federation.client.seconds.values()) + sum(federation.central.seconds.values())


def plain(count: int, length: int) -> tuple[int, float]:
    """Sum the same vectors in the clear, over the same JSON: bytes per client, CPU seconds of client and server."""
    vector = np.arange(length, dtype=np.uint64)
    total = np.zeros(length, np.uint64)
    start = time.process_time()
    text = ""
    for _ in range(count):
        text = json.dumps({"vector": base64.b64encode(vector.tobytes()).decode("ascii")})
        total += np.frombuffer(base64.b64decode(json.loads(text)["vector"]), np.uint64)
    return len(text), time.process_time() - start


def masking_speed(length: int = 100_000, repeats: int = 200) -> float:
    """Give the gigabytes of mask a second that are made and added to a vector, at best."""
    total = MaskedSum(np.zeros(length, np.uint64))
    best = math.inf
    for _ in range(repeats):
        start = time.perf_counter()
        total.add(b"k" * 32)
        best = min(best, time.perf_counter() - start)
    return 8e-9 * length / best


def a_client(by_stage: Mapping[str, float], federation: Federation) -> float:
    """Give the mean over the clients that were asked, added over the stages."""
    return sum(value / federation.asked(stage) for stage, value in by_stage.items())


def row(federation: Federation, count: int, length: int, lost: int) -> dict[str, Any]:
    up, down = a_client(federation.client.sent, federation), a_client(federation.central.sent, federation)
    everything = seconds(federation)
    plain_bytes, plain_seconds = plain(count, length)
    return {
        "clients": count,
        "words": length,
        "neighbours": federation.plan.neighbours(count),
        "threshold": federation.plan.neighbourhood_threshold(count),
        "dropped": lost,
        "client_sends_bytes": round(up),
        "client_receives_bytes": round(down),
        "client_cpu_ms": round(1e3 * a_client(federation.client.seconds, federation), 2),
        "server_cpu_s": round(sum(federation.central.seconds.values()), 3),
        "all_cpu_s": round(everything, 2),
        "all_cpu_over_n_log2_n_ms": round(1e3 * everything / (count * math.log2(count)), 2),
        "plain_sends_bytes": plain_bytes,
        "plain_all_cpu_s": round(plain_seconds, 4),
        "sends_times_plain": round(up / plain_bytes, 3),
    }


def stages(federation: Federation, count: int, length: int) -> list[dict[str, Any]]:
    return [
        {
            "clients": count,
            "words": length,
            "stage": stage,
            "client_cpu_ms": round(1e3 * federation.client.seconds[stage] / federation.asked(stage), 3),
            "server_cpu_s": round(federation.central.seconds[stage], 4),
            "client_sends_bytes": round(federation.client.sent[stage] / federation.asked(stage)),
            "client_receives_bytes": round(federation.central.sent[stage] / federation.asked(stage)),
        }
        for stage in federation.client.seconds
    ]


def against_flower(length: int) -> dict[str, Any]:
    """Run both protocols on the same number of clients, drop-outs, threshold and words, right after each other.

    The machine's load changes by the minute, so ours is the mean of one run before and one after the peer.
    """
    lost = PEER_CLIENTS // 20
    threshold = SetupPlan("peer", (Slot(0, 0, 1),)).neighbourhood_threshold(PEER_CLIENTS)
    before = [seconds(measure(PEER_CLIENTS, length, lost, text)) for text in (False, True)]
    theirs = flower_seconds(PEER_CLIENTS, length, lost, threshold)
    after = [seconds(measure(PEER_CLIENTS, length, lost, text)) for text in (False, True)]
    objects, texts = ((one + other) / 2 for one, other in zip(before, after, strict=True))
    return {
        "clients": PEER_CLIENTS,
        "words": length,
        "dropped": lost,
        "flower_cpu_s": round(theirs, 3),
        "ours_cpu_s": round(objects, 3),
        "times_faster": round(theirs / objects, 1),
        "ours_with_json_cpu_s": round(texts, 3),
        "times_faster_with_json": round(theirs / texts, 1),
    }


def flower_seconds(count: int, length: int, lost: int, threshold: int) -> float:
    from flower import MODULUS, Node, read_sum

    vectors = np.random.default_rng(length).integers(0, 1000, (count, length))
    start = time.process_time()
    nodes = [Node(place, threshold) for place in range(count)]
    keys = {node.place: node.setup() for node in nodes}
    sealed = {node.place: node.share(keys) for node in nodes}
    masked = {
        node.place: node.mask(
            {o: boxes[node.place] for o, boxes in sealed.items() if o != node.place}, vectors[node.place]
        )
        for node in nodes[lost:]
    }
    revealed = [node.unmask(set(masked)) for node in nodes[lost:]]
    total = read_sum(masked, revealed, keys, threshold)
    seconds = time.process_time() - start
    if not np.array_equal(total, vectors[lost:].sum(0) % MODULUS):
        raise SystemExit("the peer's sum is wrong")
    return seconds


def write(name: str, rows: list[dict[str, Any]]) -> None:
    if rows:
        with (HERE / name).open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, nargs="*", default=CLIENTS)
    parser.add_argument("--words", type=int, nargs="*", default=WORDS)
    parser.add_argument("--no-flower", action="store_true")
    parser.add_argument("--dry", action="store_true", help="print, and leave the files as they are")
    options = parser.parse_args()
    measure(10, 1000, 0)  # warm up
    print(f"masks: {masking_speed():.1f} GB/s", flush=True)
    sums: list[dict[str, Any]] = []
    by_stage: list[dict[str, Any]] = []
    for count in options.clients:
        for length in options.words:
            federation = measure(count, length, count // 20)
            sums.append(row(federation, count, length, count // 20))
            by_stage += stages(federation, count, length)
            print(sums[-1], flush=True)
            del federation
    peers = [] if options.no_flower else [against_flower(length) for length in options.words]
    for peer in peers:
        print(peer, flush=True)
    if not options.dry:
        write("sums.csv", sums)
        write("stages.csv", by_stage)
        write("flower.csv", peers)


if __name__ == "__main__":
    main()
