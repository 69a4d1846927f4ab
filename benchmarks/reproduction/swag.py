"""Source 004, the slides on FL-SWAG."""

from __future__ import annotations

from functools import partial

from benchmarks.reproduction.findings import Claim, Finding, Item, column, mean, pick, rows_of

SOFTMAX, FROZEN, RESNET, WHOLE = (
    f"fl_swag/{name}.csv" for name in ("softmax_regression", "frozen_body", "resnet", "whole_network")
)


def averages_win() -> Finding:
    values, holds = {}, True
    for data in ("mnist", "fashion-mnist"):
        found = {row["method"]: float(row["accuracy"]) for row in pick(SOFTMAX, data=data)}
        word = data.split("-")[0]
        values |= {f"{word}_swag": found["FL-SWAG"], f"{word}_avg": found["wFedAvg"], f"{word}_bay": found["wBayAvg"]}
        values[f"{word}_client"] = max(value for name, value in found.items() if name.startswith("client"))
        holds &= found["FL-SWAG"] < min(found["wFedAvg"], found["wBayAvg"])
    sentence = (
        "Accuracy of FL-SWAG, wFedAvg, wBayAvg and the best client: MNIST {mnist_swag:.2f}, {mnist_avg:.2f}, "
        "{mnist_bay:.2f}, "
        "{mnist_client:.2f}; Fashion-MNIST {fashion_swag:.2f}, {fashion_avg:.2f}, {fashion_bay:.2f}, "
        "{fashion_client:.2f}."
    )
    return Finding(bool(holds), sentence, values)


def whole(begun: str, method: str) -> float:
    return mean(pick(WHOLE, begun=begun, method=method), "accuracy")


def from_scratch_fails() -> Finding:
    clients = pick(WHOLE, begun="from scratch", method={f"client {k}" for k in range(1, 11)})
    values = {"avg": whole("from scratch", "FedAvg"), "weighted": whole("from scratch", "wFedAvg")}
    values |= {"swag": whole("from scratch", "FL-SWAG, mean weights"), "best": float(column(clients, "accuracy").max())}
    sentence = (
        "From scratch in one shot: FedAvg {avg:.1f}%, wFedAvg {weighted:.1f}%, FL-SWAG {swag:.1f}%; the best client "
        "alone {best:.1f}%."
    )
    return Finding(max(values["avg"], values["swag"]) < 60, sentence, values)


def pretrained_works() -> Finding:
    values = {"start": whole("pretrained", "start"), "avg": whole("pretrained", "wFedAvg")}
    values |= {"swag": whole("pretrained", "FL-SWAG, mean weights"), "drawn": whole("pretrained", "FL-SWAG, sampled")}
    sentence = (
        "A pretrained whole network ({start:.1f}%) goes on: wFedAvg {avg:.1f}%, FL-SWAG {swag:.1f}%, sampled "
        "{drawn:.1f}%."
    )
    return Finding(values["swag"] > values["start"], sentence, values)


def last_layers(data: str, file: str) -> Finding:
    values = {}
    for word in ("public", "union"):
        rows = [row for row in pick(file, data=data) if word in row["mode"]]
        found = {row["method"]: row for row in rows}
        values |= {
            f"{word}_{short}": float(found[name]["accuracy"])
            for short, name in (("swag", "FL-SWAG"), ("sgld", "SGLD, centralised"))
        }
        values["printed"] = float(found["FL-SWAG"]["slides_accuracy"])
    reached = values["union_swag"] >= values["printed"] - 1
    holds = None if data == "cifar10" else bool(reached)  # a network of so few pictures says nothing
    label = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST", "cifar10": "CIFAR"}[data]
    sentence = (
        f"{label}: FL-SWAG {{union_swag:.1f}}% when the body saw the clients' data (printed {{printed:.1f}}), "
        f"{{public_swag:.1f}}% "
        "when it saw public data; SGLD {union_sgld:.1f} and {public_sgld:.1f}."
    )
    return Finding(holds, sentence, values)


def two_clouds() -> Finding:
    found = {row["method"]: row for row in pick("fl_swag/breast_cancer.csv")}
    values = {"times": float(found["HMC"]["mean_weight_sd"]) / float(found["SWAG"]["mean_weight_sd"])}
    values |= {"hmc": float(found["HMC"]["accuracy"]), "swag": float(found["SWAG"]["accuracy"])}
    sentence = "HMC's standard deviation of a weight is {times:.0f} times SWAG's, at {hmc:.1f} and {swag:.1f}% accuracy"
    return Finding(None, sentence, values)


def holdings() -> Finding:
    rows = [row for row in pick(SOFTMAX, data="mnist") if row["method"].startswith("client")]
    values = {"least": float(column(rows, "records").min()), "most": float(column(rows, "records").max())}
    return Finding(
        values["most"] > 3 * values["least"], "Ten uneven clients of {least:,.0f} to {most:,.0f} records.", values
    )


FEW = "substitute: far fewer pictures, a narrower network"
ITEMS = (
    Item(
        "PCA in 2-D and 3-D",
        "SWAG beside HMC",
        "same",
        two_clouds,
        ("fl_swag/breast_cancer.csv",),
        ("fl_swag/breast-cancer-2d.png", "fl_swag/breast-cancer-3d.png"),
        reason="The slides draw both clouds and conclude nothing from them. Ours do not look alike.",
        testable=False,
    ),
    Item(
        "Data splitting",
        "who holds what",
        "same",
        partial(rows_of, SOFTMAX, "rows"),
        (SOFTMAX,),
        ("fl_swag/holdings-mnist.png", "fl_swag/holdings-fashion-mnist.png"),
        (Claim("Clients are heterogeneous and uneven", holdings),),
    ),
    Item(
        "Table of logistic regression",
        "clients and averages",
        "same",
        partial(rows_of, SOFTMAX, "rows, one seed"),
        (SOFTMAX,),
        ("fl_swag/confidence-mnist.png",),
        (Claim("Weighted averages are above FL-SWAG", averages_win),),
    ),
    Item(
        "Whole networks",
        "one shot from scratch",
        "same for LeNet-5 on MNIST, fewer records",
        partial(rows_of, WHOLE, "runs", begun="from scratch", method="FedAvg"),
        (WHOLE,),
        claims=(Claim("Averages of whole networks fail", from_scratch_fails),),
    ),
    Item(
        "Variant with a pretrained network",
        "clients go on training",
        "same for LeNet-5 on MNIST, fewer records",
        partial(rows_of, WHOLE, "runs", begun="pretrained", method="FedAvg"),
        (WHOLE,),
        claims=(Claim("A shared pretrained network makes them work", pretrained_works),),
    ),
    Item(
        "Results",
        "last layers over a frozen body",
        "same for LeNet-5; " + FEW + " for CIFAR-10",
        partial(rows_of, FROZEN, "rows, one seed"),
        (FROZEN, RESNET),
        ("fl_swag/confidence-lenet-mnist-union.png",),
        (
            Claim("The printed accuracy is reached", partial(last_layers, "mnist", FROZEN)),
            Claim("It is on Fashion-MNIST", partial(last_layers, "fashion-mnist", FROZEN)),
            Claim("It is on CIFAR-10", partial(last_layers, "cifar10", RESNET)),
        ),
    ),
    Item(
        "Confidence curves",
        "CIFAR-10",
        FEW,
        files=(RESNET,),
        pictures=("fl_swag/confidence-resnet-cifar10-union.png",),
        reason="Our network is right on less than half of the pictures; its curves say nothing about the slides'.",
    ),
)
