"""Types of the compiled module; see the docstrings of the classes."""
from typing import Any, Mapping, TypedDict

import numpy as np
from numpy.typing import ArrayLike

__version__: str
SCHEMA: int
"""Version of the fields below: docs/schema.md."""

Reason = dict[str, int | float | str | list[str]]
"""One reason as data: "cause", and the fields of that cause (docs/schema.md lists them)."""

class Tensor(TypedDict):
    name: str
    dtype: str
    shape: tuple[int | None, ...]
    format: str | None
    scale: float | list[float] | None
    zero_point: int | list[int] | None
    axis: int | None

class Alternative(TypedDict):
    tactic: str
    reason: str
    reasons: list[Reason]
    seconds: float | None
    estimate: float | None

class Layer(TypedDict):
    name: str
    kind: str
    onnx_nodes: list[str]
    inputs: list[Tensor]
    outputs: list[Tensor]
    tactic: str
    precision: str
    reason: str
    reasons: list[Reason]
    alternatives: list[Alternative]

class Engine:
    def run(self, inputs: Mapping[str, ArrayLike]) -> dict[str, np.ndarray]: ...
    def at(self, shapes: Mapping[str, Any]) -> Engine: ...
    def save(self, path: Any) -> None: ...
    @staticmethod
    def load(path: Any, threads: int | None = None) -> Engine: ...
    @property
    def open(self) -> bool: ...
    @property
    def inputs(self) -> list[Tensor]: ...
    @property
    def outputs(self) -> list[Tensor]: ...
    @property
    def layers(self) -> list[Layer]: ...
    @property
    def plan_hash(self) -> str: ...
    @property
    def threads(self) -> int: ...
    @property
    def device(self) -> str: ...

def load(path: Any, threads: int | None = None) -> Engine: ...
