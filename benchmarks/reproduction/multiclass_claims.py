"""What source 000, "Private Federated Multiclass Post-hoc Calibration", concludes, each conclusion measured."""

from __future__ import annotations

import numpy as np

from benchmarks.reproduction.findings import Finding, Rows, column, decided, interval, mean, names, pick
from fedcalib.types import Floats

FILE, ALONE = "maddock/published.csv", "maddock/alone.csv"
TRAINED = "cifar10-fedavg"  # the paper's pictures and kind of network
LOGITS = "substitute: logits of centrally trained networks"
MIXED = f"{LOGITS}; same for MNIST and for CIFAR-10 with a CNN trained by FedAvg"
BOTH = f"{LOGITS}; same for a CNN trained by FedAvg"
FEDERATED = ("FedBBQ", "FedBBQ, all weight", "FedBBQ, changed weight", "FedTemp", "FedOPVector", "FedCal")
WEIGHTED = ("FedBBQ, all weight", "FedBBQ, changed weight")
POINT = 1.0  # of accuracy: the paper marks what loses more


def published(figure: str, **wanted: object) -> Rows:
    return pick(FILE, figure=figure, **wanted)


def lost(rows: Rows) -> float:
    """Points of accuracy, on average over runs."""
    return 100 * (mean(rows, "base_accuracy") - mean(rows, "accuracy"))


def by_network(rows: Rows, series: str) -> dict[tuple[str, str], Rows]:
    found: dict[tuple[str, str], Rows] = {}
    for row in rows:
        if row["series"] == series:
            found.setdefault((row["dataset"], row["network"]), []).append(row)
    return found


def lost_at_most(rows: Rows, series: str) -> float:
    """The worst network's loss of accuracy."""
    return max(lost(own) for own in by_network(rows, series).values())


def times_base(rows: Rows, series: str) -> list[float]:
    """cwECE over the base model's, network by network."""
    return [mean(own, "cwece") / mean(own, "base_cwece") for own in by_network(rows, series).values()]


def best(rows: Rows, candidates: tuple[str, ...] = FEDERATED) -> list[str]:
    """For each network the candidate with the lowest cwECE among those that keep their accuracy."""
    tables = {series: by_network(rows, series) for series in candidates}
    found = []
    for network in tables[candidates[0]]:
        kept = [series for series in candidates if lost(tables[series][network]) <= POINT]
        found.append(min(kept, key=lambda series: mean(tables[series][network], "cwece")))
    return found


def difference(rows: Rows, first: str, second: str, metric: str = "cwece") -> tuple[float, float]:
    """First less second, as multiples of the base model's error, means over networks: an interval over runs."""
    runs = names(rows, "run")

    def ratios(series: str) -> Floats:
        own = [[row for row in rows if (row["series"], row["run"]) == (series, run)] for run in runs]
        return np.array([float(np.mean(column(part, metric) / column(part, f"base_{metric}"))) for part in own])

    return interval(ratios(first) - ratios(second))


def size(figure: str, **wanted: object) -> Finding:
    rows = published(figure, **wanted)
    values = {"networks": len(by_network(rows, rows[0]["series"])), "runs": len(names(rows, "run"))}
    return Finding(True, "networks: {networks}, runs: {runs}", values)


def binning_is_best(figure: str) -> Finding:
    found = best(published(figure))
    values = {"binning": sum(name.startswith("FedBBQ") for name in found), "all": len(found)}
    values["temperature"] = found.count("FedTemp")
    holds = values["binning"] == max(found.count(name) for name in set(found)) or values["binning"] > len(found) / 2
    sentence = (
        "lowest cwECE of what loses at most a point of accuracy: a FedBBQ on {binning} of {all} networks, FedTemp on"
    )
    return Finding(holds, sentence + " {temperature}.", values)


def weights_keep_accuracy(figure: str, **wanted: object) -> Finding:
    rows = published(figure, **wanted)
    values = {"plain": lost_at_most(rows, "FedBBQ"), "all": lost_at_most(rows, WEIGHTED[0])}
    values["changed"] = lost_at_most(rows, WEIGHTED[1])
    sentence = (
        "points lost on the worst network, unweighted {plain:.2f}, all weight {all:.2f}, changed weight {changed:.2f}."
    )
    return Finding(max(values["all"], values["changed"]) <= POINT, sentence, values)


def scalers_of_many_parameters(figure: str) -> Finding:
    """On how many networks FedTemp has the lower cwECE, or the other loses more than a point of accuracy."""
    rows = published(figure)
    temperature = by_network(rows, "FedTemp")
    values: dict[str, float] = {"all": len(temperature)}
    for name in ("FedOPVector", "FedCal"):
        found = by_network(rows, name)
        worse = [
            lost(own) > POINT or mean(own, "cwece") > mean(temperature[network], "cwece")
            for network, own in found.items()
        ]
        values |= {name: sum(worse), f"{name}_lost": lost_at_most(rows, name)}
    values["by_worst"] = float(worse_by_the_worst(rows))
    sentence = (
        "FedOPVector on {FedOPVector} and FedCal on {FedCal} of {all} networks, counting a loss of more than a point "
        "of accuracy as worse; they lose up to {FedOPVector_lost:.1f} and {FedCal_lost:.1f}, by ties of equal "
        "probabilities."
    )
    return Finding(min(values["FedOPVector"], values["FedCal"]) > values["all"] / 2, sentence, values)


def worse_by_the_worst(rows: Rows) -> bool:
    """The earlier test of the same: by the worst network of each method."""
    worst = {name: max(times_base(rows, name)) for name in ("FedTemp", "FedOPVector", "FedCal")}
    return all(worst[name] > worst["FedTemp"] or lost_at_most(rows, name) > POINT for name in ("FedOPVector", "FedCal"))


def temperature_is_best_privately(figure: str) -> Finding:
    rows = published(figure)
    found = best(rows)
    values = {"temperature": found.count("FedTemp"), "all": len(found), "vector": found.count("FedOPVector")}
    values["binning"] = sum(name.startswith("FedBBQ") for name in found)
    sentence = (
        "lowest cwECE of what keeps its accuracy: FedTemp on {temperature} of {all} networks, FedOPVector on {vector}, "
    )
    return Finding(values["temperature"] > len(found) / 2, sentence + "a FedBBQ on {binning}.", values)


def weighted_is_near_base(figure: str, **wanted: object) -> Finding:
    """The ratio of weighted FedBBQ's cwECE to the base model's, with intervals over runs."""
    ratios = [
        column(own, "cwece") / column(own, "base_cwece")
        for own in by_network(published(figure, **wanted), WEIGHTED[0]).values()
    ]
    ends = [interval(own) for own in ratios]
    values = {"low": min(float(own.mean()) for own in ratios), "high": max(float(own.mean()) for own in ratios)}
    values |= {"above": sum(low > 1 for low, _ in ends), "all": len(ends)}
    sentence = (
        "it has {low:.1f} to {high:.1f} times the base model's cwECE; its interval over runs is above "
        "one on "
        "{above} of {all} networks."
    )
    return Finding(values["above"] == 0, sentence, values)


def unweighted_breaks() -> Finding:
    rows = published("table 3")
    ratios = times_base(rows, "FedBBQ")
    values = {"low": min(ratios), "high": max(ratios), "lost": lost_at_most(rows, "FedBBQ")}
    sentence = "it has {low:.1f} to {high:.1f} times the base model's cwECE and loses up to {lost:.0f} points."
    return Finding(values["low"] > 1 and values["lost"] > POINT, sentence, values)


def base_accuracies() -> Finding:
    rows = [row for row in pick("base_models/results.csv") if row["source_accuracy"]]
    gaps = column(rows, "accuracy") - column(rows, "source_accuracy")
    ours = column([row for row in rows if row["beta"] not in ("1.0", "iid")], "accuracy")
    values = {"low": float(gaps.min()), "high": float(gaps.max()), "first": float(ours[0]), "rows": len(rows)}
    values["iid"] = float(column(pick("base_models/results.csv", beta="iid"), "accuracy")[0])
    values["skewed"] = float(column(pick("base_models/results.csv", beta="0.1"), "accuracy")[0])
    sentence = (
        "MNIST: {skewed:.1f}% at the strongest skew, {iid:.1f}% IID; {low:+.2f} to {high:+.2f} points beside the "
        "source's."
    )
    return Finding(values["iid"] > values["skewed"] and abs(gaps).max() < 5, sentence, values)


def base_by_sgd() -> Finding:
    """The paper's own recipe: local SGD at its rate, plain means, ten epochs."""
    rows = {(row["rate"], row["beta"]): row for row in pick("base_models/sgd.csv")}
    printed = {beta: rows["0.001", beta] for beta in ("0.1", "iid")}
    values = {"skewed": float(printed["0.1"]["accuracy"]), "iid": float(printed["iid"]["accuracy"])}
    values |= {
        "source": float(printed["0.1"]["source_accuracy"]),
        "source_iid": float(printed["iid"]["source_accuracy"]),
    }
    values |= {"fast": float(rows["0.05", "0.1"]["accuracy"]), "times": 50}
    sentence = (
        "{skewed:.1f}% at the strongest skew (printed {source:.1f}) and {iid:.1f}% IID (printed {source_iid:.1f}); at "
        "{times:.0f} times the rate {fast:.1f}% under the strongest skew."
    )
    return Finding(values["iid"] > values["source_iid"] - 2, sentence, values)


def message_sizes() -> Finding:
    def kib(method: str, rounds: float) -> float:
        return float(pick("maddock/clients.csv", method=method)[0]["KiB per client"]) / rounds

    values = {"temp": kib("FedTemp, T = 12", 12), "vector": kib("FedOPVector, T = 12", 12)}
    values |= {"cal": kib("FedCal, T = 12", 12), "bbq": kib("FedBBQ", 1)}
    source = {"temp": 0.01, "vector": 0.16, "cal": 43.08, "bbq": 20.0}
    holds = all(abs(values[name] - size) < 0.01 for name, size in source.items())
    sentence = (
        "KiB per round FedTemp {temp:.2f}, FedOPVector {vector:.2f}, FedCal {cal:.2f}, FedBBQ {bbq:.2f}, as printed."
    )
    return Finding(holds, sentence, values)


def client_times(slowest: str) -> Finding:
    """Milliseconds per round; either everything is light, or one method is the slowest."""
    field = "milliseconds of a client of 50 records"
    words = {"bin": "FedBin, 128 bins", "bbq": "FedBBQ", "temp": "FedTemp, T = 12", "cal": "FedCal, T = 12"}
    words["vector"] = "FedOPVector, T = 12"
    rounds = {"bin": 1, "bbq": 1, "temp": 12, "cal": 12, "vector": 12}
    found = {name: float(pick("maddock/clients.csv", method=word)[0][field]) for name, word in words.items()}
    values = {name: found[name] / rounds[name] for name in found}
    sentence = (
        "milliseconds FedBin {bin:.2f}, FedBBQ {bbq:.2f}, FedTemp {temp:.2f}, FedCal {cal:.2f}, FedOPVector "
        "{vector:.2f}."
    )
    if not slowest:
        return Finding(max(values.values()) < 100, sentence, values)
    return Finding(max(values, key=lambda name: values[name]) == slowest, sentence, values)


def naive_binning(dataset: str) -> Finding:
    """The paper's rounds; FedBin with a low cwECE and its accuracy kept would refute it."""

    def point(beta: str) -> tuple[float, float]:
        rows = published("1a", dataset=dataset, x=beta, series="FedBin")
        return float(np.mean(times_base(rows, "FedBin"))), lost_at_most(rows, "FedBin")

    (skewed, skewed_lost), (even, even_lost) = point("0.1"), point("10")
    values = {"skewed": skewed, "skewed_lost": skewed_lost, "even": even, "even_lost": even_lost}
    sentence = (
        "cwECE over the base model's and points lost on the worst network {skewed:.1f} and {skewed_lost:.1f} under "
        "strong "
        "skew, {even:.1f} and {even_lost:.1f} under none."
    )
    return Finding(skewed_lost > POINT or skewed > 1, sentence, values)


def local_overfitting(methods: tuple[str, ...], kept: tuple[str, ...] = ()) -> Finding:
    def change(method: str, beta: str, place: str) -> float:
        rows = pick(ALONE, method=method, beta=beta)
        return mean(rows, f"{place}_after") - mean(rows, f"{place}_before")

    values, parts, holds = {}, [], True
    for method in (*methods, *kept):
        own, far, even = change(method, "0.1", "own"), change(method, "0.1", "test"), change(method, "10.0", "test")
        values |= {f"{method}_own": own, f"{method}_far": far, f"{method}_even": even}
        holds &= own > 0 > far and far < even if method in methods else abs(far) < POINT
        parts.append(
            f"{method} {{{method}_own:+.0f}} at home, {{{method}_far:+.0f}} elsewhere ({{{method}_even:+.0f}})"
        )
    sentence = (
        "change of accuracy in points, strong skew (in brackets: elsewhere without skew): " + "; ".join(parts) + "."
    )
    return Finding(holds, sentence, values)


def binning_overtakes(dataset: str) -> Finding:
    rows = published("2ab", dataset=dataset)

    def ratio(series: str, rounds: str) -> float:
        return float(np.mean(times_base([row for row in rows if row["x"] == rounds], series)))

    values = {"temp": ratio("FedTemp", "1"), "bbq": ratio("FedBBQ", "1"), "temp_late": ratio("FedTemp", "60")}
    values |= {"bbq_late": ratio("FedBBQ", "60"), "weighted_late": ratio(WEIGHTED[0], "60")}
    values |= {"central": ratio("BBQ, central", "0"), "central_temp": ratio("temperature, central", "0")}
    values["low"], values["high"] = difference([row for row in rows if row["x"] == "60"], WEIGHTED[0], "FedTemp")
    sentence = (
        "cwECE over the base model's, fewest and most rounds: FedTemp {temp:.2f} and {temp_late:.2f}, FedBBQ "
        "{bbq:.2f} and "
        "{bbq_late:.2f}, weighted {weighted_late:.2f} at the end, which is {low:+.2f} to {high:+.2f} beside FedTemp; "
        "central BBQ {central:.2f}, temperature {central_temp:.2f}."
    )
    late = decided(values["low"], values["high"])
    return Finding(late if values["temp"] < values["bbq"] else False, sentence, values)


def accuracy_by_rounds(dataset: str) -> Finding:
    return weights_keep_accuracy("2ab", dataset=dataset, x="1")


def skew_hardly_matters(dataset: str) -> Finding:
    rows = published("2c", dataset=dataset)

    def ratio(series: str, beta: str) -> float:
        return float(np.mean(times_base([row for row in rows if row["x"] == beta], series)))

    kinds = {"bbq": "FedBBQ", "weighted": WEIGHTED[0], "temp": "FedTemp"}
    places = (("skewed", "0.1"), ("even", "10"))
    values = {f"{short}_{at}": ratio(name, beta) for short, name in kinds.items() for at, beta in places}
    values["low"], values["high"] = difference([row for row in rows if row["x"] == "0.1"], WEIGHTED[0], "FedTemp")
    sentence = (
        "cwECE over the base model's, strong skew and none: FedBBQ {bbq_skewed:.2f} and {bbq_even:.2f}, weighted "
        "{weighted_skewed:.2f} and {weighted_even:.2f}, FedTemp {temp_skewed:.2f} and {temp_even:.2f}; weighted beside "
        "FedTemp under skew {low:+.2f} to {high:+.2f}."
    )
    return Finding(decided(values["low"], values["high"]), sentence, values)


def noise(dataset: str) -> Finding:
    rows = published("3ab", dataset=dataset)

    def ratio(series: str, epsilon: str) -> float:
        return float(np.mean(times_base([row for row in rows if row["x"] == epsilon], series)))

    kinds = {"temp": "FedTemp", "bbq": "FedBBQ", "weighted": WEIGHTED[0]}
    values = {
        f"{short}_{at}": ratio(name, epsilon)
        for short, name in kinds.items()
        for at, epsilon in (("low", "0.25"), ("high", "10"))
    }
    sentence = (
        "cwECE over the base model's at the least and the greatest epsilon: FedTemp {temp_low:.2f} and "
        "{temp_high:.2f}, "
        "FedBBQ {bbq_low:.1f} and {bbq_high:.1f}, weighted {weighted_low:.1f} and {weighted_high:.1f}."
    )
    return Finding(values["temp_low"] < min(values["bbq_low"], values["weighted_low"]), sentence, values)


def noise_and_accuracy(dataset: str) -> Finding:
    return weights_keep_accuracy("3ab", dataset=dataset, x="1")


def binning_wins_with_little_noise(dataset: str) -> Finding:
    rows = published("3ab", dataset=dataset, x="10")
    values = {
        name: float(np.mean(times_base(rows, series))) for name, series in (("temp", "FedTemp"), ("bbq", WEIGHTED[0]))
    }
    sentence = (
        "at the greatest epsilon weighted FedBBQ is at {bbq:.1f} times the base model's cwECE, FedTemp at {temp:.2f}."
    )
    return Finding(values["bbq"] < values["temp"], sentence, values)


def rounds_and_noise(dataset: str, epsilon: str = "1") -> Finding:
    rows = published("9", dataset=dataset)

    def ratio(series: str, rounds: str) -> float:
        name = f"{series}, epsilon {epsilon}"
        return float(np.mean(times_base([row for row in rows if row["x"] == rounds], name)))

    kinds = {"temp": "FedTemp", "bbq": "FedBBQ", "weighted": WEIGHTED[0]}
    values = {
        f"{short}_{at}": ratio(name, rounds)
        for short, name in kinds.items()
        for at, rounds in (("first", "1"), ("last", "30"))
    }
    sentence = (
        "cwECE over the base model's, fewest and most rounds: FedTemp {temp_first:.2f} and {temp_last:.2f}, FedBBQ "
        "{bbq_first:.1f} and {bbq_last:.1f}, weighted {weighted_first:.1f} and {weighted_last:.1f}."
    )
    return Finding(
        values["weighted_last"] < values["weighted_first"] and values["weighted_last"] < 1.1 * values["temp_last"],
        sentence,
        values,
    )


def bins_hardly_matter() -> Finding:
    rows = published("4a", dataset="cifar100")
    at = {
        series: [float(np.mean(times_base([row for row in rows if row["x"] == x], series))) for x in names(rows, "x")]
        for series in ("FedBBQ", WEIGHTED[0])
    }
    values = {"plain_low": min(at["FedBBQ"]), "plain_high": max(at["FedBBQ"])}
    values |= {"low": min(at[WEIGHTED[0]]), "high": max(at[WEIGHTED[0]])}
    sentence = (
        "cwECE over the base model's over all numbers of bins: FedBBQ {plain_low:.2f} to {plain_high:.2f}, "
        "weighted {low:.2f} to {high:.2f}."
    )
    spread = values["high"] - values["low"]
    return Finding(
        spread < values["plain_high"] - values["plain_low"] and values["high"] < values["plain_low"], sentence, values
    )


def bins_and_rounds(figure: str) -> Finding:
    rows = published(figure, dataset="cifar100", x="30")
    values = {f"m{m}": float(np.mean(times_base(rows, f"{WEIGHTED[0]}, M = {m}"))) for m in (4, 7, 10)}
    values |= {f"lost{m}": lost_at_most(rows, f"{WEIGHTED[0]}, M = {m}") for m in (4, 7, 10)}
    sentence = (
        "few, the paper's and many bins after the most rounds: cwECE {m4:.2f}, {m7:.2f} and {m10:.2f} times the base "
        "model's, points lost {lost4:.1f}, {lost7:.1f} and {lost10:.1f}."
    )
    if figure == "4b":
        return Finding(values["lost10"] > values["lost7"], sentence, values)
    return Finding(values["m4"] > values["m7"], sentence, values)


def clips_of_binning() -> Finding:
    rows = published("8c", dataset="cifar100")

    def ratio(positives: str, negatives: str) -> float:
        own = [row for row in rows if row["x"] == positives]
        return float(np.mean(times_base(own, f"FedBBQ, C- = {negatives}")))

    values = {f"p{p}": float(np.mean([ratio(p, n) for n in ("10", "50", "100")])) for p in ("1", "10", "50")}
    values |= {f"n{n}": float(np.mean([ratio(p, n) for p in ("1", "10", "50")])) for n in ("10", "50", "100")}
    sentence = (
        "cwECE over the base model's, least to greatest clip of positives {p1:.1f}, {p10:.1f}, {p50:.1f}; of negatives "
        "{n10:.1f}, {n50:.1f}, {n100:.1f}."
    )
    positives = values["p50"] - values["p1"]
    return Finding(positives > 0 and positives > abs(values["n100"] - values["n10"]), sentence, values)


def top_label_hides_it(dataset: str) -> Finding:
    rows = published("2ab", dataset=dataset, x="60")
    values = {}
    for metric in ("ece", "cwece"):
        values[f"{metric}_low"], values[f"{metric}_high"] = difference(rows, "FedBBQ", "FedTemp", metric)
    sentence = (
        "after the most rounds FedBBQ beside FedTemp, over the base model's error: ECE {ece_low:+.2f} to "
        "{ece_high:+.2f}, "
        "cwECE {cwece_low:+.2f} to {cwece_high:+.2f}."
    )
    alike = values["ece_low"] <= 0 <= values["ece_high"]
    return Finding(decided(values["cwece_low"], values["cwece_high"]) if alike else False, sentence, values)


def clip_of_temperature(dataset: str) -> Finding:
    rows = published("11", dataset=dataset)

    def ratio(clip: str, rounds: str) -> float:
        return float(np.mean(times_base([row for row in rows if row["x"] == rounds], f"FedTemp, C = {clip}")))

    values = {
        f"{word}_{at}": ratio(clip, rounds)
        for word, clip in (("half", "0.5"), ("none", "-1"))
        for at, rounds in (("first", "1"), ("twelve", "12"), ("last", "60"))
    }
    sentence = (
        "cwECE over the base model's with the paper's clip and without: one round {half_first:.2f} and "
        "{none_first:.2f}, "
        "the paper's rounds {half_twelve:.2f} and {none_twelve:.2f}, the most {half_last:.2f} and {none_last:.2f}."
    )
    holds = values["half_twelve"] < values["none_twelve"] and values["half_first"] > values["none_first"]
    return Finding(holds, sentence, values)


def runs_of(file: str, **wanted: object) -> Finding:
    rows = pick(file, **wanted)
    return Finding(
        True,
        "networks: {networks}, runs: {runs}",
        {"networks": len(names(rows, "network")), "runs": len(names(rows, "run"))},
    )
