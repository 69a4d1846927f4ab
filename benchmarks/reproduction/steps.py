"""What has to be run for each source, at full size and quickly, and within which tolerances a quick run must agree."""

from __future__ import annotations

from dataclasses import dataclass

Row = dict[str, str]


@dataclass(frozen=True)
class Compared:
    """Rows of a file that agree in `key` have values that agree within a tolerance, absolute or relative."""

    file: str
    key: tuple[str, ...]
    values: tuple[str, ...]
    absolute: float
    relative: float
    share: float = 1.0  # of the values that must agree: noise of fewer repetitions moves some

    def judged(self, fresh: list[Row], stored: list[Row]) -> tuple[int, int]:
        """How many values were compared, and how many agree."""
        known = {tuple(row[name] for name in self.key): row for row in stored}
        pairs = [(row, known.get(tuple(row[name] for name in self.key))) for row in fresh]
        both = [(float(row[name]), float(old[name])) for row, old in pairs if old for name in self.values if row[name]]
        near = [abs(new - old) <= max(self.absolute, self.relative * abs(old)) for new, old in both]
        return len(near), sum(near)


@dataclass(frozen=True)
class Step:
    """A module with its arguments; {mnist} and the like stand for directories, {out} for where a quick run writes."""

    module: str
    writes: tuple[str, ...]
    full: tuple[str, ...] = ()
    quick: tuple[str, ...] = ()  # none: it has no quick version
    compared: Compared | None = None


SKEWED, MNIST = ("--beta", "0.1"), ("--mnist", "{mnist}")
PUBLISHED_KEY = ("figure", "dataset", "network", "x", "series", "run")
SOURCES: dict[str, tuple[Step, ...]] = {
    "000": (
        Step("base_models.run", ("base_models/results.csv",), ("--mnist", "{mnist}")),
        Step("base_models.run", ("base_models/sgd.csv",), (*SKEWED, "--beta", "iid", "--sgd", "0.001", *MNIST)),
        Step("base_models.run", ("base_models/sgd.csv",), (*SKEWED, "--sgd", "0.05", *MNIST)),
        Step("base_models.cifar", ("base_models/cifar.csv",), ("--cifar10", "{cifar10}")),
        Step(
            "maddock.published",
            ("maddock/published.csv",),
            (),
            ("--quick", "--out", "{out}/published.csv"),
            Compared("maddock/published.csv", PUBLISHED_KEY, ("cwece", "accuracy"), 0.005, 0.05, 0.95),
        ),
        Step(
            "maddock.alone",
            ("maddock/alone.csv",),
            (),
            ("--runs", "1", "--out", "{out}/alone.csv"),
            Compared(
                "maddock/alone.csv",
                ("dataset", "network", "beta", "method", "run"),
                ("own_after", "test_after"),
                1.0,
                0.0,
                0.95,
            ),
        ),
        Step("maddock.roles", ("maddock/roles.csv", "base_models/shakespeare.csv"), ("--data", "{shakespeare}")),
        Step("maddock.cells", ("maddock/cells.csv",), ("--fashion", "{fashion}")),
        Step("maddock.clients", ("maddock/clients.csv",)),
    ),
    "001": (
        Step(
            "cormode_markov.ece_by_clients",
            ("cormode_markov/ece_by_clients.csv",),
            (),
            ("--runs", "2", "--out", "{out}/ece_by_clients.csv"),
            Compared("cormode_markov/ece_by_clients.csv", ("model", "clients", "run"), ("distance",), 0.0, 0.05),
        ),
        Step(
            "cormode_markov.run",
            tuple(
                f"cormode_markov/{name}.csv"
                for name in (
                    "figure_2_rates_by_height",
                    "figure_3_rates_by_clients",
                    "figure_4_auc_by_buckets",
                    "figure_5_ece_by_bins",
                    "auc_by_clients",
                    "averaged_auc",
                    "equal_epsilon",
                    "local_limit",
                )
            ),
            (),
            ("--quick", "flights", "figure_2_rates_by_height", "figure_4_auc_by_buckets", "--out={out}"),
            Compared(
                "cormode_markov/figure_4_auc_by_buckets.csv",
                ("set", "clients", "buckets", "model", "run", "estimator"),
                ("error",),
                1e-6,
                0.05,
                0.95,
            ),
        ),
    ),
    "002": (
        Step("ccvr.run", ("ccvr/results.csv",), ("--data", "fashion-mnist={fashion}", "--data", "mnist={mnist}")),
        Step("ccvr.similarity", ("ccvr/similarity.csv",), ("--data", "fashion-mnist={fashion}")),
        Step(
            "ccvr.as_published",
            ("ccvr/as_published.csv",),
            ("--data", "mnist={mnist}"),
            ("--data", "mnist={mnist}", "--seeds", "1", "--out", "{out}/as_published.csv"),
            Compared("ccvr/as_published.csv", ("data", "alpha", "seed", "repair"), ("accuracy",), 3.0, 0.0, 0.75),
        ),
        Step(
            "ccvr.as_published",
            ("ccvr/as_published.csv",),
            ("--data", "cifar10={cifar10}", "--seeds", "1", "--alpha", "0.1", "--alpha", "0.5"),
        ),
    ),
    "003": (
        Step(
            "domain_shift.run",
            ("domain_shift/results.csv",),
            (),
            (
                "--severity",
                "5",
                "--severity",
                "1",
                "--thin",
                "15",
                "--trials",
                "100",
                "--processes",
                "1",
                "--out",
                "{out}/results.csv",
            ),
            Compared(
                "domain_shift/results.csv",
                ("corruption", "severity", "panel", "sources", "samples", "epsilon", "method"),
                ("ece",),
                0.01,
                0.15,
                0.95,
            ),
        ),
        Step("domain_shift.without_privacy", ("domain_shift/without_privacy.csv",)),
        Step("domain_shift.clipping", ("domain_shift/clipping.csv",)),
        Step(
            "domain_shift.pictures",
            tuple(f"domain_shift/{name}.csv" for name in ("pictures", "pictures_open", "pictures_clipping")),
            ("--cifar10", "{cifar10}"),
        ),
    ),
    "004": (
        Step(
            "fl_swag.run",
            ("fl_swag/softmax_regression.csv",),
            ("--data", "mnist={mnist}", "--data", "fashion-mnist={fashion}"),
        ),
        Step(
            "fl_swag.frozen_body",
            ("fl_swag/frozen_body.csv",),
            ("--data", "mnist={mnist}", "--data", "fashion-mnist={fashion}"),
        ),
        Step("fl_swag.resnet", ("fl_swag/resnet.csv",), ("--cifar10", "{cifar10}")),
        Step("fl_swag.breast_cancer", ("fl_swag/breast_cancer.csv",)),
        Step(
            "fl_swag.whole_network",
            ("fl_swag/whole_network.csv",),
            ("--data", "mnist={mnist}"),
            ("--data", "mnist={mnist}", "--seeds", "1", "--out", "{out}/whole_network.csv"),
            Compared("fl_swag/whole_network.csv", ("data", "begun", "seed", "method"), ("accuracy",), 5.0, 0.0, 0.75),
        ),
    ),
}
