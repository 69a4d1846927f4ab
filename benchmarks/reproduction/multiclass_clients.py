"""What source 000 concludes about base models, about networks of every skew, and about natural clients, measured."""

from __future__ import annotations

from benchmarks.reproduction.findings import Claim, Finding, decided, has, mean, names, pick
from benchmarks.reproduction.multiclass_claims import FEDERATED, WEIGHTED, difference, lost, published, times_base

ROLES, CELLS, PICTURES = "maddock/roles.csv", "maddock/cells.csv", "base_models/cifar.csv"


def base_on_pictures() -> Finding:
    """The CNN on CIFAR-10: accuracy and class-wise error at the strongest skew and at none."""
    rows = {row["beta"]: row for row in pick(PICTURES)}
    values = {}
    for word, beta in (("skewed", "0.1"), ("iid", "iid")):
        values |= {word: float(rows[beta]["accuracy"]), f"{word}_printed": float(rows[beta]["source_accuracy"])}
        values |= {f"{word}_cwece": float(rows[beta]["cwece"])}
    values["printed"] = 8.11
    sentence = (
        "{skewed:.1f}% at the strongest skew (printed {skewed_printed:.1f}) and {iid:.1f}% IID (printed "
        "{iid_printed:.1f}), after far fewer epochs; cwECE {skewed_cwece:.1f}% and {iid_cwece:.1f}% (printed for a "
        "larger network {printed:.1f}%)."
    )
    return Finding(values["skewed"] < values["iid"], sentence, values)


def skew_of_the_network() -> Finding:
    """Figure 6c: networks of every beta, each calibrated by clients of its own skew; cwECE in percent."""
    rows = published("6c", dataset="mnist")
    places = sorted(names(rows, "x"), key=float)
    values = {"betas": len(places)}
    for short, series in (("weighted", WEIGHTED[0]), ("temp", "FedTemp")):
        for word, x in (("skewed", places[0]), ("even", places[-1])):
            values[f"{short}_{word}"] = mean([row for row in rows if (row["series"], row["x"]) == (series, x)], "cwece")
    sentence = (
        "cwECE in percent at the strongest skew and IID: weighted FedBBQ {weighted_skewed:.2f} and "
        "{weighted_even:.2f}, FedTemp {temp_skewed:.2f} and {temp_even:.2f}; networks of {betas} betas."
    )
    holds = values["weighted_skewed"] > values["weighted_even"] and values["temp_skewed"] > values["temp_even"]
    return Finding(holds, sentence, values)


def binning_wins_at_every_skew() -> Finding:
    rows = published("6c", dataset="mnist")
    ends = [
        difference([row for row in rows if row["x"] == x], WEIGHTED[0], "FedTemp")
        for x in sorted(names(rows, "x"), key=float)
    ]
    values = {"below": sum(high < 0 for _, high in ends), "above": sum(low > 0 for low, _ in ends), "all": len(ends)}
    sentence = (
        "weighted FedBBQ beside FedTemp, intervals over runs: below on {below} and above on {above} of {all} networks."
    )
    return Finding(values["below"] == values["all"], sentence, values)


def nothing_improves_roles() -> Finding:
    """Shakespeare by role without privacy: the lowest cwECE of each method over rounds, over the base model's."""
    rows = pick(ROLES, figure=("7", "table 2"))
    values = {"base": mean(rows, "base_cwece"), "lost": lost([row for row in rows if row["series"] == WEIGHTED[0]])}
    parts = []
    for series in (name for name in FEDERATED if name in names(rows, "series")):
        own = [row for row in rows if row["series"] == series]
        short = f"ratio{len(parts)}"
        values[short] = min(times_base([row for row in own if row["x"] == x], series)[0] for x in names(own, "x"))
        parts.append(f"{series} {{{short}:.2f}}")
    sentence = (
        "cwECE over the base model's ({base:.2f}%), at the best number of rounds: "
        + "; ".join(parts)
        + ". All weight loses {lost:.2f} points."
    )
    return Finding(min(value for name, value in values.items() if name.startswith("ratio")) >= 1, sentence, values)


def roles_under_privacy() -> Finding:
    rows = pick(ROLES, figure="table 3")
    found = {series: times_base(rows, series)[0] for series in FEDERATED if series in names(rows, "series")}
    values = {f"ratio{at}": value for at, value in enumerate(found.values())}
    parts = [f"{series} {{ratio{at}:.2f}}" for at, series in enumerate(found)]
    sentence = f"cwECE over the base model's: {'; '.join(parts)}."
    return Finding(min(found, key=lambda name: found[name]) == "FedTemp", sentence, values)


def writers_by_rounds() -> Finding:
    """MNIST by writer stands in for FEMNIST."""
    rows = pick(CELLS, figure=("7", "table 2"), dataset="mnist-writers")

    def ratio(series: str, rounds: str) -> float:
        return times_base([row for row in rows if row["x"] == rounds], series)[0]

    values = {"temp": ratio("FedTemp", "1"), "bbq": ratio("FedBBQ", "1"), "temp_late": ratio("FedTemp", "60")}
    values |= {"bbq_late": ratio("FedBBQ", "60"), "weighted_late": ratio(WEIGHTED[0], "60")}
    values["low"], values["high"] = difference([row for row in rows if row["x"] == "60"], WEIGHTED[0], "FedTemp")
    sentence = (
        "cwECE over the base model's, fewest and most rounds: FedTemp {temp:.2f} and {temp_late:.2f}, FedBBQ "
        "{bbq:.2f} and {bbq_late:.2f}, weighted {weighted_late:.2f} at the end, {low:+.2f} to {high:+.2f} beside "
        "FedTemp."
    )
    return Finding(decided(values["low"], values["high"]), sentence, values)


def size_of_natural_clients() -> Finding:
    roles = pick("base_models/shakespeare.csv", fewest=50)[0]
    values = {"runs": len(names(pick(ROLES), "run")), "roles": float(roles["clients"])}
    if not has(CELLS, dataset="mnist-writers"):
        return Finding(True, "{roles:.0f} roles, runs: {runs}", values)
    writers = pick(CELLS, dataset="mnist-writers")
    values |= {"writers": float(writers[0]["clients"]), "writer_runs": len(names(writers, "run"))}
    said = "{roles:.0f} roles, runs: {runs}; {writers:.0f} writers of digits, runs: {writer_runs}"
    return Finding(True, said, values)


def writers_files() -> tuple[str, ...]:
    return (CELLS,) if has(CELLS, dataset="mnist-writers") else ()


def writers_word() -> str:
    return ", MNIST by writer stands in" if writers_files() else ""


def writers_claims() -> tuple[Claim, ...]:
    """MNIST by writer stands in for FEMNIST, where it has been run."""
    says = "By writer, binning outperforms scaling over many rounds"
    return (Claim(says, writers_by_rounds),) if writers_files() else ()
