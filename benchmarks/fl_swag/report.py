"""Write the tables of README.md, and annex.md, from the CSV files: `python -m benchmarks.fl_swag.report`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import mean

from benchmarks.filled import fill
from benchmarks.fl_swag.data import CLIENTS
from benchmarks.fl_swag.settings import AVERAGES, SHRINKS, TABLE, chosen, swag_name
from benchmarks.progress import Table

HERE = Path(__file__).parent
Row = dict[str, str]
METRICS = ("accuracy", "ece_x100", "brier_x10", "nll_x10")
NAMES = ("accuracy, %", "ECE x 100", "Brier x 10", "NLL x 10")
AVERAGED = ("FedAvg", "wFedAvg", "BayAvg", "wBayAvg", "FL-SWAG", "FL-SWAG, shrunken", "FL-SWAG, Fisher")
LAST_LAYER = ("FL-SWAG", "FL-SWAG, Fisher", "wFedAvg", "SGLD, centralised", "pSGLD, centralised")


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """Lay out a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(str(cell) for cell in line) + " |" for line in lines] + [""]


def read(name: str) -> list[Row]:
    """Read a CSV file, or nothing where there is none."""
    return Table(HERE / name).rows


def against(rows: Sequence[Row]) -> str:
    """Say which methods are at or above the slides' accuracy, and which are not; variants go by their first name."""
    goals = {row["method"]: row["slides_accuracy"] for row in rows if row["slides_accuracy"]}
    told: dict[bool, list[str]] = {True: [], False: []}
    for row in rows:
        goal = goals.get(row["method"].split(",")[0])
        if goal and not row["method"].startswith("client"):
            told[float(row["accuracy"]) >= float(goal)].append(f"{row['method']} {row['accuracy']} ({goal})")
    up, down = ("; ".join(told[each]) or "none" for each in (True, False))
    return f"At or above the slides' figure (in brackets): {up}. Below it: {down}."


def settings_section(data: str) -> list[str]:
    """Say what was chosen, and what shrinking did."""
    how = chosen(data)
    key = {"data": data, "rate": str(how.rate), "prior": str(how.prior), "epochs": str(how.epochs)}
    rows_ = [row for row in TABLE.rows if key.items() <= row.items()]
    here = {row["method"]: row["held_out_accuracy"] for row in rows_}
    worst = [min(float(here[f"client {k + 1}{ending}"]) for k in range(CLIENTS)) for ending in ("", ", last weights")]
    rows = [[f"{shrink:g}", here[swag_name(shrink, False)], here[swag_name(shrink, True)]] for shrink in SHRINKS]
    averages = ", ".join(f"{name} {here[name]}" for name in AVERAGES)
    return [
        f"**{data}**: rate {how.rate:g}, {how.epochs} local epochs of batches of 64, prior precision {how.prior:g}, "
        f"variances shrunken by {how.shrink:g}. Held-out accuracy there: {averages}; the worst "
        f"client {worst[0]:.2f} (with its last weights in place of the mean {worst[1]:.2f}). FL-SWAG by shrinkage:",
        "",
        *table(["variances taken to the median by", "FL-SWAG", "weighted by records"], rows),
    ]


def shrinking() -> str:
    """Count the settings at which shrinking helped."""
    found: dict[tuple[str, ...], dict[str, float]] = {}
    for row in TABLE.rows:
        key = tuple(row[name] for name in ("data", "rate", "prior", "epochs"))
        found.setdefault(key, {})[row["method"]] = float(row["held_out_accuracy"])
    pairs = [(each[swag_name(0.9, w)], each[swag_name(0.0, w)]) for each in found.values() for w in (False, True)]
    better = sum(more > none for more, none in pairs)
    return f"Shrinking variances by 0.9 beat not shrinking them in {better} of {len(pairs)} cases, weighted or not."


def softmax_section() -> list[str]:
    """Give the first table, and beside it the slides'."""
    lines = ["### Softmax regression: one-shot averages on the favourite-class split", ""]
    lines += [
        "The slides give no learning rate. 10,000 training records chose ours (`settings.csv`): the best mean of the",
        "four averages, then the best shrinkage below 1 of the weighted trajectory. A client's model is the mean of",
        "its weights over the second half of its epochs, as in the slides' code.",
        shrinking(),
        "",
    ]
    rows = read("softmax_regression.csv")
    for data in dict.fromkeys(row["data"] for row in rows):
        own = [row for row in rows if row["data"] == data]
        lines += settings_section(data)
        body = [
            [row["method"], row["records"], *(row[name] for name in METRICS), row["slides_accuracy"]] for row in own
        ]
        lines += table(["method", "records", *NAMES, "slides' accuracy"], body)
        lines += [against(own), "", f"![accuracy against confidence](confidence-{data}.png)", ""]
    return lines


def last_layer_section(name: str, title: str, intro: str) -> list[str]:
    """Give a table of the second kind: one part for each data set and mode."""
    rows = read(name)
    lines = [f"### {title}", "", intro, ""]
    for network, data, mode in dict.fromkeys((row["network"], row["data"], row["mode"]) for row in rows):
        own = [row for row in rows if (row["network"], row["data"], row["mode"]) == (network, data, mode)]
        told = f"**{data}, {own[0]['network']}, {mode}** ({size(own[0])}):"
        head = ["method", "setting", *NAMES, *(f"slides: {name}" for name in NAMES)]
        cells = [*METRICS, *(f"slides_{name}" for name in METRICS)]
        body = [[row["method"], row["setting"], *(row[each] for each in cells)] for row in own]
        lines += [told, "", *table(head, body)]
        place = "public" if "public" in mode else "union"
        short = {"LeNet-5": "lenet", "ResNet-18": "resnet"}[network]
        lines += [f"![accuracy against confidence](confidence-{short}-{data}-{place}.png)", ""]
    return [*lines, *last_layer_findings(rows), ""]


def size(row: Row) -> str:
    """Say on how much a body was trained, and how much the clients hold."""
    clients = f"clients hold {int(row['clients_records']):,} records"
    if "width" in row:
        told = f"width {row['width']}, {int(row['pretrained_records']):,} pictures and their mirror images"
        return f"{told}, {row['pretrained_epochs']} epochs; {clients}"
    return f"body trained on {row['pretrained_on']}, {row['pretrained_epochs']} epochs; {clients}"


def last_layer_findings(rows: Sequence[Row]) -> list[str]:
    """Say how the best federated posterior compares with the slides' FL-SWAG, in each part."""
    lines = []
    for network, data, mode in dict.fromkeys((row["network"], row["data"], row["mode"]) for row in rows):
        own = [row for row in rows if (row["network"], row["data"], row["mode"]) == (network, data, mode)]
        ours = [row for row in own if row["method"].startswith("FL-SWAG")]
        goal = ours[0]
        best = min(ours, key=lambda row: float(row["nll_x10"]))
        both = [
            row["method"]
            for row in ours
            if float(row["accuracy"]) >= float(goal["slides_accuracy"])
            and float(row["ece_x100"]) <= float(goal["slides_ece_x100"])
        ]
        lines.append(
            f"- {data}, {network}, {mode}: the slides' FL-SWAG has {goal['slides_accuracy']}% and "
            f"ECE {goal['slides_ece_x100']}; ours with the least log loss is {best['method']}: {best['accuracy']}%, "
            f"ECE {best['ece_x100']}. At least as accurate and as well calibrated as the slides': "
            f"{'; '.join(both) or 'none'}."
        )
    return lines


def breast_cancer_section() -> list[str]:
    """Say how SWAG's spread compares with the posterior's."""
    rows = {row["method"]: row for row in read("breast_cancer.csv")}
    head = ["method", "draws", *NAMES, "scale", "mean sd of a weight"]
    body = [
        [name, row["draws"], *(row[each] for each in METRICS), row["scale"], row["mean_weight_sd"]]
        for name, row in rows.items()
    ]
    exact = rows["HMC"]
    ratio = float(exact["mean_weight_sd"]) / float(rows["SWAG"]["mean_weight_sd"])
    return [
        "### SWAG against Hamiltonian Monte Carlo",
        "",
        "Breast Cancer Wisconsin, three hidden layers of 8 units, 410 weights, prior precision 1. HMC:",
        f"{exact['chains']} chains from random starts, {float(exact['accepted']):.0%} of proposals taken, split R-hat",
        f"of the potential {exact['r_hat']}.",
        "",
        *table(head, body),
        f"The posterior's standard deviation of a weight is {ratio:.0f} times SWAG's (the prior's is 1): SGD's spread",
        "is not the posterior's. On the posterior's axes SWAG's cloud is a dot, at one of many places that fit.",
        f"Held-out records chose a scale of {float(rows['SWAG, scale tuned']['scale']):g}.",
        "",
        "![two axes](breast-cancer-2d.png)",
        "![three axes](breast-cancer-3d.png)",
        "",
    ]


def memory_section() -> list[str]:
    """Give peaks."""
    rows = read("memory.csv")
    body = [
        [
            row["case"],
            f"{int(row['weights']):,}",
            row["clients"],
            row["rank"],
            row["peak_gib"],
            row["processor_seconds"],
        ]
        for row in rows
    ]
    return ["### Memory", "", *table(["case", "weights", "clients", "rank", "peak, GiB", "processor seconds"], body)]


LENET = """Both bodies are LeNet-5s trained by Adam on one data set; the last layer starts at zero. The rate and the
shrinkage with the least held-out log loss are shown. "Then temperature" calibrates by one temperature, found through
secure sums on the held-out records, dealt to the clients."""
RESNET = """Far smaller than the slides': narrower, fewer pictures, a few epochs. Two cores allowed no more, so compare
these accuracies with each other only."""
SECTIONS: dict[str, Callable[[], list[str]]] = {
    "softmax_regression.csv": softmax_section,
    "frozen_body.csv": partial(last_layer_section, "frozen_body.csv", "LeNet-5 with a frozen body", LENET),
    "resnet.csv": partial(last_layer_section, "resnet.csv", "CIFAR-10, as far as two cores allow", RESNET),
    "breast_cancer.csv": breast_cancer_section,
    "memory.csv": memory_section,
}


def softmax_short() -> str:
    """The first table without its clients and variants."""
    rows = {(row["data"], row["method"]): row for row in read("softmax_regression.csv")}
    sets = list(dict.fromkeys(data for data, _ in rows))
    slides = {"FL-SWAG, shrunken": "", "FL-SWAG, Fisher": ""}
    body = [
        [name, *(cell for data in sets for cell in (
            rows[data, name]["accuracy"], slides.get(name, rows[data, name]["slides_accuracy"]),
            rows[data, name]["ece_x100"], rows[data, name]["nll_x10"],
        ))]
        for name in AVERAGED
    ]  # fmt: skip
    head = [f"{data}: {name}" for data in sets for name in ("accuracy, %", "slides", "ECE x 100", "NLL x 10")]
    return "\n".join(table(["method", *head], body)).rstrip()


def last_layer_short() -> str:
    """Accuracies of the second table: one line per data set, network and pretraining."""
    rows = [*read("frozen_body.csv"), *read("resnet.csv")]
    body = []
    for key in dict.fromkeys((row["data"], row["network"], row["mode"]) for row in rows):
        own = {row["method"]: row for row in rows if (row["data"], row["network"], row["mode"]) == key}
        mode = "public" if "public" in key[2] else "union"
        cells = [f"{own[name]['accuracy']} ({own[name]['slides_accuracy'] or '-'})" for name in LAST_LAYER]
        body.append([f"{key[0]}, {key[1]}, {mode}", *cells])
    return "\n".join(table(["data, network, pretraining", *LAST_LAYER], body)).rstrip()


WHOLE = ("start", "FedAvg", "wFedAvg", "wBayAvg", "FL-SWAG, mean weights", "FL-SWAG, sampled")


def whole_short() -> str:
    """Whole networks: means over seeds."""
    rows = read("whole_network.csv")
    body = []
    for begun in dict.fromkeys(row["begun"] for row in rows):
        own = [row for row in rows if row["begun"] == begun]
        clients = [float(row["accuracy"]) for row in own if row["method"].startswith("client")]
        found = [[float(row["accuracy"]) for row in own if row["method"] == name] for name in WHOLE]
        cells = [f"{mean(values):.1f}" for values in found]
        body.append([begun, str(len(found[0])), *cells, f"{min(clients):.1f} to {max(clients):.1f}"])
    return "\n".join(table(["begun", "seeds", *WHOLE, "clients alone"], body)).rstrip()


SHORT: dict[str, Callable[[], str]] = {
    "softmax": softmax_short, "last layer": last_layer_short, "whole": whole_short,
}  # fmt: skip


def annex() -> str:
    """Everything that the files show."""
    lines = ["# FL-SWAG: every table", "", "Written by `python -m benchmarks.fl_swag.report`.", ""]
    for name, section in SECTIONS.items():
        lines += section() if (HERE / name).exists() else []
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    (HERE / "annex.md").write_text(annex())
    fill(HERE / "README.md", {name: part() for name, part in SHORT.items()})
