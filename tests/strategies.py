"""Hypothesis strategies that several tests share."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import fedcalib as fc

LOGITS = st.one_of(
    st.floats(-50, 50, allow_subnormal=False),
    st.sampled_from([0.0, -0.0, 1e30, -1e30, 1e-300, 700.0, -700.0, 1e308, -1e308]),
)


@st.composite
def records(draw: st.DrawFn, classes: int, most: int = 12) -> fc.Records:
    """Any records a client may hold: none, ties, huge logits, certain probabilities."""
    n = draw(st.integers(0, most))
    labels = draw(hnp.arrays(np.int64, n, elements=st.integers(0, classes - 1)))
    logits = draw(hnp.arrays(np.float64, (n, classes), elements=LOGITS))
    if draw(st.booleans()):
        return fc.Records.of_logits(logits, labels)
    probs = fc.Records.of_logits(logits, labels).probs.copy()
    if draw(st.booleans()) and n:
        probs[0] = np.eye(classes)[labels[0]]
    return fc.Records.of_probs(probs, labels)


@st.composite
def federations(draw: st.DrawFn, classes: int, most_clients: int = 4) -> fc.Federation:
    """A few clients, some perhaps without records."""
    clients = draw(st.integers(1, most_clients))
    logits = draw(st.booleans())
    parts = [draw(records(classes, 6)) for _ in range(clients)]
    same = [part if part.are_logits == logits else _turn(part, logits) for part in parts]
    return fc.Federation.of(same)


def _turn(part: fc.Records, logits: bool) -> fc.Records:
    if logits:
        return fc.Records.of_logits(np.asarray(part.logits), part.labels)
    return fc.Records.of_probs(np.asarray(part.probs), part.labels)


FINITE = st.floats(-1e12, 1e12, allow_subnormal=False)


@st.composite
def answers(draw: st.DrawFn, query: fc.query.Query) -> fc.query.Answer:
    """Any answer at all, however noisy."""
    value = draw(hnp.arrays(np.float64, query.size, elements=FINITE, fill=FINITE))
    variance = np.full(query.size, draw(st.sampled_from([0.0, 1e-12, 1.0, 1e12])))
    return fc.query.Answer.of(query, value, variance, draw(st.integers(0, 10)))
