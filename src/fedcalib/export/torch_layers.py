"""One function per layer of torch that can be exported. Imported only when a torch network is exported."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import singledispatch
from typing import Any, Final

import numpy as np
import torch
import torch.fx
from torch import nn

from fedcalib.errors import InputError
from fedcalib.export.graph import Graph
from fedcalib.training.torch_session import UnitLinear, traced
from fedcalib.types import Array, Floats


def logits_of(graph: Graph, module: Any, examples: Array) -> str:
    """Add a module to a graph, from its forward pass on symbols, and return the name of its outputs."""
    module.eval()
    given = _as_tensor(graph, examples)
    if isinstance(module, nn.Linear):
        return layer(module, graph, given)
    names: dict[Any, str] = {}
    for node in traced(module).nodes:
        if node.op == "placeholder":
            names[node] = given
        elif node.op == "output":
            return names[node.args[0]]
        elif node.op == "call_module":
            names[node] = layer(module.get_submodule(node.target), graph, names[node.args[0]])
        else:
            names[node] = _operation(node, graph, names)
    raise InputError("Expected a module with outputs, found none.")


def _as_tensor(graph: Graph, examples: Array) -> str:
    """Inputs as training prepares them: bytes are divided by 255, with channels first; whole numbers are tokens."""
    if examples.dtype == np.uint8:
        pixels = graph.op("Div", graph.cast("inputs", np.float32), graph.single(np.array(255.0)))
        if examples.ndim == 3:
            return graph.op("Unsqueeze", pixels, np.array([1]))
        return graph.op("Transpose", pixels, perm=[0, 3, 1, 2])
    return graph.cast("inputs", np.int64 if examples.dtype.kind in "iu" else np.float32)


def _sum(graph: Graph, first: str, second: str) -> str:
    return graph.op("Add", first, second)


def _same(graph: Graph, value: str) -> str:
    return value


def _flat(graph: Graph, value: str) -> str:
    return graph.op("Flatten", value, axis=1)


def _rectified(graph: Graph, value: str) -> str:
    return graph.op("Relu", value)


OPERATIONS: Final[dict[Any, Callable[..., str]]] = {
    operator.add: _sum, torch.add: _sum, torch.relu: _rectified, nn.functional.relu: _rectified,
    torch.flatten: _flat, "contiguous": _same, "relu": _rectified, "flatten": _flat,
}  # fmt: skip


def _operation(node: Any, graph: Graph, names: dict[Any, str]) -> str:
    """An operation outside of layers; a plain number among its arguments, such as the axis of a flattening, is 1."""
    known = OPERATIONS.get(node.target)
    numbers = [value for value in (*node.args, *node.kwargs.values()) if isinstance(value, int | float)]
    if known is None or any(value not in (1, False) for value in numbers):
        raise _refused(str(getattr(node.target, "__name__", node.target)))
    return known(graph, *(names[value] for value in node.args if isinstance(value, torch.fx.Node)))


def _refused(what: str) -> InputError:
    return InputError(
        f"Expected a network of layers that can be exported, found {what}. Convolutions, pooling, linear layers, "
        "rectifiers, flattening, group and batch normalisation and sums can be; torch.onnx may know the others."
    )


@singledispatch
def layer(module: Any, graph: Graph, value: str) -> str:
    """Add a layer to a graph and return the name of its outputs."""
    raise _refused(type(module).__name__)


def _numbers(tensor: Any) -> Floats:
    array: Floats = tensor.detach().numpy()
    return array


def _pair(value: Any) -> list[int]:
    return [value, value] if isinstance(value, int) else list(value)


@layer.register
def _(module: nn.Conv2d, graph: Graph, value: str) -> str:
    if isinstance(module.padding, str) or module.padding_mode != "zeros":
        raise _refused("a convolution with padding by other than a number of zeros")
    shift = [] if module.bias is None else [graph.single(_numbers(module.bias))]
    return graph.op(
        "Conv", value, graph.single(_numbers(module.weight)), *shift, kernel_shape=_pair(module.kernel_size),
        strides=_pair(module.stride), pads=2 * _pair(module.padding), dilations=_pair(module.dilation),
        group=module.groups,
    )  # fmt: skip


@layer.register
def _(module: nn.MaxPool2d, graph: Graph, value: str) -> str:
    return graph.op(
        "MaxPool", value, kernel_shape=_pair(module.kernel_size), strides=_pair(module.stride),
        pads=2 * _pair(module.padding), dilations=_pair(module.dilation), ceil_mode=int(module.ceil_mode),
    )  # fmt: skip


@layer.register
def _(module: nn.AdaptiveAvgPool2d, graph: Graph, value: str) -> str:
    if _pair(module.output_size) != [1, 1]:
        raise _refused(f"adaptive pooling to {module.output_size}")
    return graph.op("GlobalAveragePool", value)


@layer.register
def _(module: nn.Linear, graph: Graph, value: str) -> str:
    product = graph.op("MatMul", value, graph.single(_numbers(module.weight).T))
    return product if module.bias is None else graph.op("Add", product, graph.single(_numbers(module.bias)))


@layer.register
def _(module: UnitLinear, graph: Graph, value: str) -> str:
    return graph.op("MatMul", value, graph.single(_numbers(nn.functional.normalize(module.weight, eps=1e-30)).T))


@layer.register
def _(module: nn.GroupNorm, graph: Graph, value: str) -> str:
    """Each group of channels as one channel of an instance normalisation, then the channels' own scales."""
    shape, groups = graph.op("Shape", value), module.num_groups
    by_group = graph.op("Reshape", value, np.array([0, groups, -1]))
    plain = graph.single(np.ones(groups)), graph.single(np.zeros(groups))
    normalised = graph.op("InstanceNormalization", by_group, *plain, epsilon=float(module.eps))
    back = graph.op("Reshape", normalised, shape)
    scale, shift = (graph.single(_numbers(part).reshape(-1, 1, 1)) for part in (module.weight, module.bias))
    return graph.op("Add", graph.op("Mul", back, scale), shift)


@layer.register(nn.BatchNorm1d)
@layer.register(nn.BatchNorm2d)
def _(module: Any, graph: Graph, value: str) -> str:
    kept = (module.weight, module.bias, module.running_mean, module.running_var)
    if any(part is None for part in kept):
        raise _refused("batch normalisation without scales or running averages")
    return graph.op(
        "BatchNormalization", value, *(graph.single(_numbers(part)) for part in kept), epsilon=float(module.eps)
    )


@layer.register(nn.Dropout)
@layer.register(nn.Identity)
def _(module: Any, graph: Graph, value: str) -> str:
    return value


@layer.register
def _(module: nn.ReLU, graph: Graph, value: str) -> str:
    return _rectified(graph, value)


@layer.register
def _(module: nn.Tanh, graph: Graph, value: str) -> str:
    return graph.op("Tanh", value)


@layer.register
def _(module: nn.Flatten, graph: Graph, value: str) -> str:
    if (module.start_dim, module.end_dim) != (1, -1):
        raise _refused("a flattening of other axes than all of a record")
    return _flat(graph, value)
