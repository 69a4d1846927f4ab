"""An ONNX graph under construction: operations are added one by one, and numbers become constants where needed."""

from __future__ import annotations

from typing import Any, Final, TypeAlias, final

import numpy as np

from fedcalib.errors import InputError
from fedcalib.types import Array

OPSET: Final = 18  # the first in which every reduction that is used takes its axes as an input
IR_VERSION: Final = 8  # the format that came with it, so that older runtimes read the file too

Value: TypeAlias = str | float | Array  # a value of the graph by its name, or a constant


def parts() -> tuple[Any, Any]:
    """Import onnx and onnxruntime, or say what to install."""
    try:
        import onnx
        import onnxruntime
    except ImportError as error:
        raise InputError(
            f"Expected the packages onnx and onnxruntime, found none of the name {error.name}; "
            "install them with: pip install 'fedcalib[onnx]'."
        ) from error
    return onnx, onnxruntime


@final
class Graph:
    """Collects nodes and constants; every operation gives the name of its result."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def op(self, kind: str, *inputs: Value, **attributes: Any) -> str:
        """Add an operation with one result."""
        return self.ops(kind, 1, *inputs, **attributes)[0]

    def ops(self, kind: str, results: int, *inputs: Value, **attributes: Any) -> tuple[str, ...]:
        """Add an operation with several results."""
        onnx, _ = parts()
        place = len(self.nodes)
        names = tuple(f"{kind.lower()}_{place}" + (f"_{k}" if k else "") for k in range(results))
        given = [value if isinstance(value, str) else self.constant(value) for value in inputs]
        self.nodes.append(onnx.helper.make_node(kind, given, list(names), name=f"{kind}_{place}", **attributes))
        return names

    def constant(self, value: float | Array) -> str:
        """Add a constant; plain numbers are doubles, arrays of integers stay integers."""
        onnx, _ = parts()
        array = np.asarray(value)
        kept = array.astype(np.int64 if array.dtype.kind in "iu" and array.ndim else np.float64)
        name = f"constant_{len(self.constants)}"
        self.constants.append(onnx.numpy_helper.from_array(kept, name))
        return name

    def cast(self, value: str, dtype: type[Any]) -> str:
        """Turn values into another type; doubles become integers by cutting toward zero."""
        onnx, _ = parts()
        return self.op("Cast", value, to=onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def reduced(self, kind: str, value: str, keep: bool = True) -> str:
        """Reduce each record to one number, such as ReduceSum or ReduceMax."""
        return self.op(kind, value, np.array([1]), keepdims=int(keep))

    def columns(self, value: str, start: int, stop: int | None) -> str:
        """Cut columns out of every record."""
        last = np.iinfo(np.int64).max if stop is None else stop
        return self.op("Slice", value, np.array([start]), np.array([last]), np.array([1]))
