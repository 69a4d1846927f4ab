"""Ask for a tree of scores and read it as a table: the opening of every method for binary classifiers."""

from __future__ import annotations

import numpy as np

from fedcalib.answer import Answer
from fedcalib.binning import bin_edges
from fedcalib.errors import InputError
from fedcalib.method import Flow
from fedcalib.metrics.score_table import ScoreTable
from fedcalib.queries.score_tree import ScoreTree
from fedcalib.records import Schema
from fedcalib.trees import at_fit, consistent
from fedcalib.types import Floats


def score_table(tree: ScoreTree) -> Flow[ScoreTable]:
    """Ask for every level and fit the leaves to all of them."""
    answer = yield tree
    return table_of(tree, answer)


def table_of(tree: ScoreTree, answer: Answer) -> ScoreTable:
    """Read an answer to a tree as a table of its leaves, fitted twice where noise grows with the counts."""
    values, variances = list(answer.values.values()), list(answer.variances.values())
    first = consistent(values, variances, tree.arity)
    variances = at_fit(first, values, variances, tree.arity)
    leaves = consistent(values, variances, tree.arity)
    return ScoreTable(bin_edges(tree.leaves), leaves, tree.arity, tuple(one_a_level(level) for level in variances))


def one_a_level(variances: Floats) -> Floats:
    """Keep one number a label where all cells of a level carry the same noise."""
    alike = bool((variances == variances[:, :1]).all())
    return np.array(variances[:, :1] if alike else variances, dtype=np.float64)


def two_classes(schema: Schema) -> None:
    """Refuse classifiers of more than two classes before anybody is asked."""
    if schema.classes != 2:
        raise InputError(f"Expected a binary classifier, found {schema.classes} classes; use a multiclass method.")
