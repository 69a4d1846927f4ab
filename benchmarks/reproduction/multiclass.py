"""Source 000, "Private Federated Multiclass Post-hoc Calibration": its tables and figures, one by one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from benchmarks.reproduction import multiclass_claims as measured
from benchmarks.reproduction.findings import Claim, Finding, Item, rows_of
from benchmarks.reproduction.multiclass_claims import ALONE, FILE, LOGITS, MIXED

CLIENTS, BASES = "maddock/clients.csv", "base_models/results.csv"
KEPT = "The weights prevent a loss of more than a point of accuracy"


def item(name: str, about: str, figure: str, dataset: str, *claims: Claim) -> Item:
    """A figure that published.csv has, on one data set."""
    return Item(name, about, LOGITS, partial(measured.size, figure, dataset=dataset), (FILE,), claims=claims)


def claim(says: str, found: Callable[..., Finding], *arguments: object, **named: object) -> Claim:
    return Claim(says, partial(found, *arguments, **named))


OVERTAKES = "Over many rounds FedBBQ overtakes FedTemp, which is better after few"
RESILIENT = "FedTemp is the most resilient to noise"
IMPROVES = "With more rounds weighted FedBBQ improves and comes close to FedTemp, also under noise"
ITEMS = (
    Item("Table 1", "related work", "none", reason="It lists papers; there is nothing to measure.", testable=False),
    Item(
        "Table 2",
        "cwECE without privacy",
        MIXED,
        partial(measured.size, "table 2"),
        (FILE,),
        claims=(
            claim("Binning has the lowest cwECE", measured.binning_is_best),
            claim(KEPT, measured.weights_keep_accuracy, "table 2"),
            claim("FedOPVector and FedCal are worse than FedTemp", measured.scalers_of_many_parameters, "table 2"),
        ),
    ),
    Item(
        "Table 3",
        "cwECE under user-level privacy",
        MIXED,
        partial(measured.size, "table 3"),
        (FILE,),
        claims=(
            claim("FedTemp has the lowest cwECE", measured.temperature_is_best_privately),
            claim("Weighted FedBBQ is no worse than the base model", measured.weighted_is_near_base),
            claim(f"{KEPT}, CIFAR-10", measured.weights_keep_accuracy, "table 3", dataset="cifar10"),
            claim(f"{KEPT}, CIFAR-100", measured.weights_keep_accuracy, "table 3", dataset="cifar100"),
            claim("Unweighted FedBBQ breaks", measured.unweighted_breaks),
            claim("FedOPVector and FedCal are worse than FedTemp", measured.scalers_of_many_parameters, "table 3"),
        ),
    ),
    Item(
        "Table 4", "data sets", "none", reason="It lists data sets; see the list of missing data below.", testable=False
    ),
    Item(
        "Table 5",
        "accuracy of base models",
        "same for MNIST; CIFAR pictures are missing",
        partial(rows_of, BASES, "trainings by FedAvg with local Adam and some with local SGD, one seed"),
        (BASES, "base_models/sgd.csv"),
        ("base_models/results.png",),
        (
            claim("Skew costs accuracy, local Adam", measured.base_accuracies),
            claim("Local SGD at the printed rate reaches the printed accuracy", measured.base_by_sgd),
        ),
    ),
    Item(
        "Table 6",
        "bytes per round",
        "same",
        partial(rows_of, CLIENTS, "methods"),
        (CLIENTS,),
        claims=(claim("Messages have the printed sizes", measured.message_sizes),),
    ),
    Item(
        "Table 7",
        "seconds of a client",
        "substitute: another machine",
        partial(rows_of, CLIENTS, "methods"),
        (CLIENTS,),
        claims=(
            claim("Every method takes at most a tenth of a second", measured.client_times, ""),
            claim("FedTemp is the slowest", measured.client_times, "temp"),
        ),
    ),
    item(
        "Figure 1a",
        "naive binning by skew",
        "1a",
        "cifar10",
        claim("FedBin cannot have a low cwECE and its accuracy kept under skew", measured.naive_binning),
    ),
    Item(
        "Figure 1b",
        "binning by clients alone",
        LOGITS,
        partial(measured.runs_of, ALONE),
        (ALONE,),
        claims=(claim("It helps at home and hurts elsewhere", measured.local_overfitting, ("FedBin",)),),
    ),
    Item(
        "Figure 1c",
        "scaling by clients alone",
        LOGITS,
        partial(measured.runs_of, ALONE),
        (ALONE,),
        claims=(
            claim("Vector and matrix scaling overfit", measured.local_overfitting, ("FedVector", "FedMatrix")),
            claim("FedTemp keeps accuracy", measured.local_overfitting, (), ("FedTemp",)),
            claim("FedOPVector keeps accuracy", measured.local_overfitting, (), ("FedOPVector",)),
        ),
    ),
    item("Figure 2a", "cwECE by rounds", "2ab", "cifar10", claim(OVERTAKES, measured.binning_overtakes, "cifar10")),
    item(
        "Figure 2b", "accuracy after one round", "2ab", "cifar10", claim(KEPT, measured.accuracy_by_rounds, "cifar10")
    ),
    item(
        "Figure 2c", "cwECE by skew", "2c", "cifar10", claim("Binning is below FedTemp", measured.skew_hardly_matters)
    ),
    item("Figure 3a", "cwECE by epsilon", "3ab", "cifar10", claim(RESILIENT, measured.noise, "cifar10")),
    item("Figure 3b", "accuracy by epsilon", "3ab", "cifar10", claim(KEPT, measured.noise_and_accuracy, "cifar10")),
    item("Figure 3c", "rounds and epsilon", "9", "cifar100", claim(IMPROVES, measured.rounds_and_noise, "cifar100")),
    item(
        "Figure 4a",
        "bins, one round",
        "4a",
        "cifar100",
        claim("Weighted FedBBQ varies less with the bins and is lower", measured.bins_hardly_matter),
    ),
    item(
        "Figure 4b",
        "bins and rounds",
        "4b",
        "cifar100",
        claim("Too many bins cost accuracy", measured.bins_and_rounds, "4b"),
    ),
    item(
        "Figure 4c",
        "bins and rounds, private",
        "4c",
        "cifar100",
        claim("Few bins are bad under noise", measured.bins_and_rounds, "4c"),
    ),
    item(
        "Figure 5",
        "CIFAR-100 without privacy",
        "2ab",
        "cifar100",
        claim(OVERTAKES, measured.binning_overtakes, "cifar100"),
        claim(f"{KEPT}, one round", measured.accuracy_by_rounds, "cifar100"),
    ),
    Item(
        "Figure 6",
        "MNIST without privacy",
        "same, a CNN trained by FedAvg with local Adam",
        partial(measured.size, "2ab", dataset="mnist"),
        (FILE,),
        claims=(
            claim(OVERTAKES, measured.binning_overtakes, "mnist"),
            claim(f"{KEPT}, one round", measured.accuracy_by_rounds, "mnist"),
        ),
    ),
    Item(
        "Figure 7",
        "FEMNIST and Shakespeare",
        "missing",
        reason="FEMNIST cannot be had here; an LSTM was trained on Shakespeare's roles but not calibrated.",
    ),
    item(
        "Figure 8ab",
        "CIFAR-100 by epsilon",
        "3ab",
        "cifar100",
        claim(RESILIENT, measured.noise, "cifar100"),
        claim("With little noise FedBBQ is best", measured.binning_wins_with_little_noise, "cifar100"),
    ),
    item(
        "Figure 8c",
        "clips of histograms",
        "8c",
        "cifar100",
        claim("The clip of positives matters most and should be small", measured.clips_of_binning),
    ),
    Item(
        "Figure 9",
        "rounds and epsilon",
        f"{LOGITS}; FEMNIST is missing",
        partial(measured.size, "9"),
        (FILE,),
        claims=(
            claim(f"{IMPROVES}, CIFAR-10", measured.rounds_and_noise, "cifar10"),
            claim(f"{IMPROVES}, CIFAR-100", measured.rounds_and_noise, "cifar100"),
        ),
    ),
    item(
        "Figure 10",
        "ECE against cwECE",
        "2ab",
        "cifar10",
        claim("By ECE binning and scaling are alike, by cwECE binning is better", measured.top_label_hides_it),
    ),
    item(
        "Figure 11",
        "clip of FedTemp",
        "11",
        "cifar10",
        claim("A clip helps over some rounds and hurts in the first", measured.clip_of_temperature),
    ),
)
