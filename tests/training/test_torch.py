"""Torch networks as vectors of weights: gradients, features and curvature are those of the module."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from benchmarks.baselines import alone
from benchmarks.shakespeare import shakespeare
from benchmarks.similarity import layer_similarity, linear_cka, plot_similarity

import fedcalib as fc
from fedcalib import datasets, metrics, registry, wire
from fedcalib.data import partition
from fedcalib.errors import InputError, WireError
from fedcalib.methods.ccvr import CCVR, Retrained
from fedcalib.methods.fed_avg import FedAvg
from fedcalib.methods.fl_swag import FLSWAG
from fedcalib.training import SGD, Adam, CharLSTM, ConvNet, LeNet5, LocalTraining, OwnNetwork, ResNet18, UnitHead
from fedcalib.training.posterior import Curvature, Trajectory

torch = pytest.importorskip("torch")
torch.set_num_threads(1)
GREY = np.random.default_rng(0).integers(0, 256, (6, 28, 28), dtype=np.uint8)
COLOUR = np.random.default_rng(0).integers(0, 256, (3, 32, 32, 3), dtype=np.uint8)


class Wobbly(torch.nn.Module):
    """A user's own network, with batch normalisation and dropout."""

    def __init__(self, hidden: int = 5) -> None:
        super().__init__()
        self.body = torch.nn.Sequential(
            torch.nn.Linear(4, hidden), torch.nn.BatchNorm1d(hidden), torch.nn.ReLU(), torch.nn.Dropout(0.5)
        )
        self.top = torch.nn.Linear(hidden, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.top(self.body(x))


registry.register(Wobbly)


class Halved(torch.nn.Module):
    """Goes on after its last layer."""

    def __init__(self) -> None:
        super().__init__()
        self.top = torch.nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.top(x) / 2


registry.register(Halved)


def table(n: int = 200, seed: int = 0) -> fc.Records:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 4))
    labels = (x @ np.random.default_rng(5).normal(size=(4, 3)) * 2).argmax(axis=1)
    return fc.Records.of_logits(np.zeros((n, 3)), labels, inputs=x)


@pytest.mark.parametrize(
    ("network", "inputs", "features"),
    [
        (ConvNet(width=4), GREY, 128),
        (LeNet5(), GREY, 84),
        (LeNet5(side=32, channels=3), COLOUR, 84),
        (ResNet18(width=8), COLOUR, 64),
        (CharLSTM(20, 4, 8, 1), np.random.default_rng(0).integers(0, 20, (5, 12), dtype=np.int8), 8),
    ],
    ids=lambda value: type(value).__name__,
)
def test_networks_score_and_their_head_takes_their_features(
    network: ConvNet, inputs: np.ndarray, features: int
) -> None:
    weights = network.start(3)
    np.testing.assert_array_equal(weights, network.start(3))
    session = network.session(weights)
    assert session.features(inputs).shape == (len(inputs), features)
    labels = np.arange(len(inputs)) % network.outputs
    records = fc.Records.of_logits(np.zeros((len(inputs), network.outputs)), labels, inputs=inputs)
    from fedcalib.artifacts.networks import Trained

    scored = Trained(network, weights).over(records)
    np.testing.assert_allclose(scored.logits, session.logits(inputs), atol=1e-5)
    assert wire.loads(wire.dumps(network)) == network


def test_gradients_are_those_of_finite_differences() -> None:
    network = ConvNet(width=2)
    labels = np.array([0, 1, 2, 3, 4, 5])
    session = network.session(network.start(0))
    slope = session.gradient(GREY, labels).copy()
    direction = np.random.default_rng(0).normal(size=len(slope)).astype(np.float32)
    direction /= np.linalg.norm(direction)

    def loss(step: float) -> float:
        logits = network.session(network.start(0) + np.float32(step) * direction).logits(GREY).astype(np.float64)
        return metrics.nll(fc.Records.of_logits(logits, labels).probs, labels)

    assert (loss(1e-2) - loss(-1e-2)) / 2e-2 == pytest.approx(float(slope @ direction), abs=2e-3)


def test_curvature_of_a_torch_head_is_that_of_softmax_regression() -> None:
    from fedcalib.training import SoftmaxRegression

    class Flat(torch.nn.Linear):
        def __init__(self) -> None:
            super().__init__(4, 3)

    registry.register(Flat)
    network, plain = OwnNetwork("Flat"), SoftmaxRegression(4, 3)
    weights = network.start(1)
    x = table(30).extra["inputs"]
    np.testing.assert_allclose(network.session(weights).curvature(x), plain.session(weights).curvature(x), rtol=1e-4)


def test_your_own_module_trains_and_its_running_averages_are_averaged() -> None:
    network = OwnNetwork("Wobbly", {"hidden": 8})
    assert len(network.start(0)) == network.trainable + 16  # a running mean and a running variance for each of 8
    method = FedAvg(network, 8, LocalTraining(3, 16, Adam(0.03)))
    federation = fc.Federation.iid(table(), 4, 0)
    model = fc.run(method, fc.InProcess(federation), fc.SecAgg(), randomness=fc.Simulated(0)).artifact
    scored = model.over(table(seed=1))
    assert (scored.logits.argmax(axis=1) == scored.labels).mean() > 0.7
    assert not np.allclose(model.weights[network.trainable :][:8], 0)
    np.testing.assert_array_equal(model.over(table(seed=1)).logits, scored.logits)  # no dropout when used
    assert wire.loads(wire.dumps(network)) == network


def test_only_registered_modules_are_built() -> None:
    with pytest.raises(WireError):
        OwnNetwork("os.system").session(np.zeros(1))
    with pytest.raises(InputError, match="torch module"):
        OwnNetwork("Temperature", {"temperature": 1.0}).start(0)
    with pytest.raises(WireError, match="sites only name"):
        wire.decode({"type": "Wobbly", "fields": {}})


def test_posteriors_of_torch_networks_predict() -> None:
    network = OwnNetwork("Wobbly", {"hidden": 6})
    federation = fc.Federation.iid(table(120), 3, 0)
    recipe = Trajectory(LocalTraining(3, 16, SGD(0.05)), collected=4, rank=2, shrink=0.0, weighted=False)
    for method in (
        FLSWAG(network, recipe, 0.1, width=6),
        FLSWAG(network, Curvature(LocalTraining(2)), 1.0),
        FLSWAG(network),
    ):
        found = fc.run(method, fc.InProcess(federation), fc.SecAgg(), randomness=fc.Simulated(0)).artifact
        probs = found.over(table(50, seed=1)).probs
        np.testing.assert_allclose(probs.sum(axis=1), 1)
        spread = found.mean[-6:]  # running variances: an average of the clients', which a prior must not draw to zero
        assert 0.1 < spread.min() <= spread.max() < 10
        assert found.variance[-6:].max() < 1e-5


def test_cka_is_one_for_rotations_and_low_for_strangers() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 10))
    turn = np.linalg.qr(rng.normal(size=(10, 10)))[0]
    assert linear_cka(x, 3 * x @ turn) == pytest.approx(1)
    assert linear_cka(x, rng.normal(size=(200, 10))) < 0.15
    wide = np.concatenate([x, x**2, x**3] * 10, axis=1)
    gram = linear_cka(x[:50], wide[:50])
    centred = [z[:50] - z[:50].mean(axis=0) for z in (x, wide)]
    plain = np.linalg.norm(centred[0].T @ centred[1]) ** 2
    plain /= np.linalg.norm(centred[0].T @ centred[0]) * np.linalg.norm(centred[1].T @ centred[1])
    assert gram == pytest.approx(plain)  # both ways of working it out agree


@pytest.fixture(scope="module")
def digits(shared: Path) -> tuple[fc.Federation, fc.Records]:
    mnist = datasets.mnist(shared / "mnist_writers")
    rows = np.random.default_rng(0).permutation(np.flatnonzero(~mnist.test))[:2500]
    return partition.dirichlet(mnist.records(rows), 6, 0.05, 1, fewest=10), mnist.records(
        np.flatnonzero(mnist.test)[:1500]
    )


@pytest.mark.shared
def test_train_repair_calibrate_evaluate(digits: tuple[fc.Federation, fc.Records], tmp_path: Path) -> None:
    """The whole pipeline on real digits under heavy skew: each step leaves the model better than it found it."""
    federation, test = digits
    training = LocalTraining(2, 32, SGD(0.05, 0.9))
    model = fc.run(
        FedAvg(ConvNet(width=6), 4, training, largest=2500), fc.InProcess(federation), fc.SecAgg(),
        randomness=fc.Simulated(0),
    ).artifact  # fmt: skip
    scored, seen = model.across(federation), model.over(test)
    features = scored.records.extra["features"].shape[1]
    head = fc.run(CCVR(features, Retrained(200), start=model.head), fc.InProcess(scored), fc.SecAgg()).artifact
    repaired, after = head.across(scored), head.over(seen)
    gained = metrics.accuracy(after.probs, test.labels) - metrics.accuracy(seen.probs, test.labels)
    assert gained > 0.02
    fitted = fc.run(fc.OneShotTemperature(), fc.InProcess(repaired), fc.SecAgg()).artifact
    report = fc.run(fc.FederatedMetrics(), fc.InProcess(fc.Federation.iid(fitted.over(after), 5, 0)), fc.SecAgg())
    assert report.artifact.accuracy.value == pytest.approx(metrics.accuracy(after.probs, test.labels))
    assert metrics.nll(fitted.over(after).probs, test.labels) < metrics.nll(after.probs, test.labels) + 0.05


@pytest.mark.shared
def test_the_head_is_where_skewed_clients_differ_most(digits: tuple[fc.Federation, fc.Records], tmp_path: Path) -> None:
    federation, test = digits
    network = ConvNet(width=6)
    biggest = federation.subset(np.argsort(federation.sizes)[-3:])
    models = alone(network, biggest, LocalTraining(2, 32, SGD(0.05, 0.9)), weights=network.start(0), seed=0)
    layers = layer_similarity(models, test.extra["inputs"][:300])
    means = [each[~np.eye(3, dtype=bool)].mean() for each in layers.values()]
    assert means[0] > means[-1]
    assert plot_similarity(layers, tmp_path / "cka.png").stat().st_size > 1000


def test_a_unit_head_counts_by_direction_only() -> None:
    network = UnitHead(LeNet5())
    weights = network.start(3)
    longer = weights.copy()
    longer[network.head[0]] *= 7
    from fedcalib.artifacts.networks import Trained

    records = fc.Records.of_logits(np.zeros((6, 10)), np.arange(6), inputs=GREY)
    scored = Trained(network, weights).over(records)
    np.testing.assert_allclose(Trained(network, longer).over(records).logits, scored.logits, atol=1e-5)
    np.testing.assert_allclose(Trained(network, weights).head.over(scored).logits, scored.logits, atol=1e-5)
    slope = network.session(weights).gradient(GREY, np.arange(6))[network.head[0]].reshape(10, -1)
    held = weights[network.head[0]].reshape(10, -1)
    assert abs(np.sum(slope * held, axis=1)).max() < 1e-4  # training turns rows, and never lengthens them at first
    assert len(network.start(0)) == len(LeNet5().start(0)) - 10  # no shift
    assert wire.loads(wire.dumps(network)) == network


def test_scores_are_the_modules_own_whatever_follows_its_last_layer() -> None:
    network = OwnNetwork("Halved")
    from fedcalib.artifacts.networks import Trained

    model = Trained(network, network.start(0))
    np.testing.assert_allclose(model.over(table(9)).logits, model.logits(table(9).extra["inputs"]), atol=1e-6)
    np.testing.assert_allclose(model.over(table(9)).extra["features"], table(9).extra["inputs"], atol=1e-6)


@pytest.mark.shared
def test_the_lstm_learns_more_of_roles_than_how_often_characters_occur(shared: Path) -> None:
    spoken = shakespeare(shared / "shakespeare_roles", length=10, stride=20)
    train, group = spoken.records(~spoken.test), np.asarray(spoken.group)[~spoken.test]
    roles = partition.natural(train, group, fewest=500).subset(np.arange(10))
    method = FedAvg(CharLSTM(spoken.classes, 8, 32, 1), 6, LocalTraining(1, 16, Adam(0.01)), largest=1000)
    model = fc.run(method, fc.InProcess(roles), fc.SecAgg(), randomness=fc.Simulated(0)).artifact
    test = spoken.records(np.flatnonzero(spoken.test)[::5])
    seen = np.bincount(train.labels, minlength=spoken.classes) + 1.0
    frequencies = float(-np.log(seen / seen.sum())[test.labels].mean())
    assert metrics.nll(model.over(test).probs, test.labels) < frequencies - 0.3


class TopFirst(torch.nn.Module):
    """Declares its layers in another order than it runs them, and one that it never runs."""

    def __init__(self) -> None:
        super().__init__()
        self.top = torch.nn.Linear(3, 3)
        self.first = torch.nn.Linear(4, 3)
        self.unused = torch.nn.Linear(4, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.top(3 * torch.tanh(self.first(x)))


class Winding(TopFirst):
    """Decides by values, which cannot be traced."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.top(self.first(x)) if bool(x.sum() > -1e9) else self.top(x[:, :3])


registry.register(TopFirst)
registry.register(Winding)


@pytest.mark.parametrize("network", [OwnNetwork("TopFirst"), OwnNetwork("Winding", top="top")], ids=["traced", "named"])
def test_the_head_is_the_linear_layer_that_runs_last(network: OwnNetwork) -> None:
    """It was the one declared last: a head for other features, without a word."""
    from fedcalib.artifacts.networks import Trained

    assert network.outputs == 3
    model = Trained(network, network.start(1))
    scored = model.over(table(40))
    assert scored.extra["features"].shape == (40, 3)
    np.testing.assert_allclose(model.head.over(scored).logits, scored.logits, atol=1e-5)


def test_a_head_that_cannot_be_found_is_asked_for() -> None:
    with pytest.raises(InputError, match=r"tracing its forward pass.*top='NAME'.*'top', 'first', 'unused'"):
        OwnNetwork("Winding").session(OwnNetwork("Winding").start(0))
    with pytest.raises(InputError, match="none of that name"):
        _ = OwnNetwork("Winding", top="nowhere").outputs
    with pytest.raises(InputError, match="arguments that TopFirst takes"):
        OwnNetwork("TopFirst", {"hiden": 3}).start(0)
    with pytest.raises(WireError, match=r"registry\.register"):
        OwnNetwork("Nowhere").start(0)


def test_a_network_that_changes_its_heads_outputs_has_no_head_to_repair() -> None:
    from fedcalib.artifacts.networks import Trained

    network = OwnNetwork("Halved")
    with pytest.raises(InputError, match="something after it"):
        _ = Trained(network, network.start(0)).head
