"""Scores and labels of three kinds, with the maximum-likelihood coefficients that statsmodels 0.15.0 finds on them.

`python -m tests.methods.platt_reference` prints `FOUND` anew where statsmodels is installed, which no test needs.
"""

from __future__ import annotations

import numpy as np

# intercept and slope of log-odds; intercept, weight of ln p and weight of -ln(1 - p)
FOUND = {
    "ordinary": (
        (0.29740927503470704, 0.5817237579745197),
        (0.2977416319647067, 0.5818764835020491, 0.5815070267563257),
    ),
    "skewed": (
        (0.5568742455075131, 0.8155693294778014),
        (0.5098808789778166, 0.8043657757832683, 0.8941340132190313),
    ),
    "tied": (
        (-0.4000732631621047, 0.7132602689241666),
        (-0.3087190817433566, 0.7513142108064741, 0.6399458327894136),
    ),
}
TIES = np.array([0.03, 0.07, 0.12, 0.2, 0.28, 0.37, 0.5, 0.62, 0.8, 0.93])
TIED_SHARES = (0.2, 0.18, 0.15, 0.12, 0.1, 0.08, 0.07, 0.05, 0.03, 0.02)


def drawn() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Scores as a logistic regression has them, as boosted trees do (69% below 0.001), and ten distinct ones."""
    rng, found = np.random.default_rng(15), {}
    odds = rng.normal(-0.5, 1.8, 20_000)
    found["ordinary"] = odds, rng.random(20_000) < sigmoid(0.6 * odds + 0.3)
    odds = np.where(rng.random(40_000) < 0.75, rng.normal(-9, 1.5, 40_000), rng.normal(-3, 2.0, 40_000))
    found["skewed"] = odds, rng.random(40_000) < sigmoid(0.8 * odds + 0.5)
    score = rng.choice(TIES, 15_000, p=TIED_SHARES)
    odds = np.log(score / (1 - score))
    found["tied"] = odds, rng.random(15_000) < sigmoid(0.7 * odds - 0.4)
    return {name: (sigmoid(odds), labels.astype(int)) for name, (odds, labels) in found.items()}


def sigmoid(odds: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-odds))


def maximum_likelihood(score: np.ndarray, labels: np.ndarray) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The coefficients of both models, by statsmodels."""
    import statsmodels.api as sm

    rising, falling = np.log(score), -np.log1p(-score)
    columns = [np.ones_like(score), rising + falling], [np.ones_like(score), rising, falling]
    fits = (sm.Logit(labels, np.stack(each, axis=1)).fit(disp=0) for each in columns)
    platt, beta = (tuple(fit.params.tolist()) for fit in fits)
    return platt, beta


if __name__ == "__main__":
    for name, (score, labels) in drawn().items():
        print(name, *maximum_likelihood(score, labels))
