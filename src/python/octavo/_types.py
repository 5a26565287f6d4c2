"""What the dicts of this package hold, for type checkers and readers."""
from typing import Dict, List, Optional, Tuple, TypedDict, Union

Reason = Dict[str, Union[int, float, str, List[str]]]
"""One reason as data: "cause", and the fields of that cause (docs/schema.md lists them)."""


class TensorInfo(TypedDict):
    """An input, an output, or a tensor of a layer."""
    name: str
    dtype: str  # NumPy's name
    shape: Tuple[Optional[int], ...]  # None where open
    symbols: Tuple[Optional[str], ...]  # of an engine's input or output: the model's name of each dimension
    format: Optional[str]  # of a bound input or output, as "uint8:hwc"
    scale: Union[float, List[float], None]  # when the elements are codes; a list: per axis
    zero_point: Union[int, List[int], None]
    axis: Optional[int]


class ModelInfo(TypedDict):
    """What a model file says of itself."""
    producer_name: str
    graph_name: str
    domain: str
    description: str
    graph_description: str
    version: int
    metadata: Dict[str, str]


class Alternative(TypedDict):
    tactic: str
    reason: str
    reasons: List[Reason]
    seconds: Optional[float]
    estimate: Optional[float]


class OtherType(TypedDict):
    """What the planner counted with for a type that it did not take: the time of the region that computes the node, in a plan with that type."""
    type: str  # "int8", "float32", "bfloat16" or "float16"
    node: str  # the ONNX node that the decision is about
    seconds: float
    seconds_source: str  # "measured" or "estimated"


class Layer(TypedDict):
    """One region of the plan. `other_types` is empty where no other type was priced: at effort 0 and 1 (bfloat16 on a GPU apart), for layers that
    Q/DQ pairs make int8, and for float16, which is taken where it is allowed and not weighed (docs/precision.md)."""
    name: str
    kind: str
    onnx_nodes: List[str]
    inputs: List[TensorInfo]
    outputs: List[TensorInfo]
    tactic: str
    precision: str
    reason: str
    reasons: List[Reason]
    alternatives: List[Alternative]
    seconds: Optional[float]  # of `tactic`, as the planner counted with it; None where it is unknown
    seconds_source: Optional[str]  # "measured" or "estimated"
    other_types: List[OtherType]


class Finding(TypedDict):
    """What octavo.doctor finds."""
    severity: str  # "error" or "warning"
    rule: str
    tensor: str
    nodes: List[str]
    text: str


class BenchResult(TypedDict):
    """Milliseconds of whole runs."""
    threads: int
    runs: int
    median_ms: float
    p99_ms: float
    mean_ms: float
    min_ms: float
    images_per_second: float


class LayerTime(TypedDict):
    name: str
    tactic: str
    precision: str
    median_ms: float
    share: float  # of the sum over the layers, 0 to 1


class ProfileResult(TypedDict):
    median_ms: float  # of whole runs
    min_ms: float
    layers: List[LayerTime]


class RegionCheck(TypedDict):
    name: str
    tactic: str
    elements: int  # compared
    different: int
    off_by_one: int  # of `different`
    allowed: int  # codes at rounding ties behind a float sum, whose order is free; 16-bit floats a step away
    worst: float  # largest difference of floats, as a part of the largest magnitude
    skipped: Optional[str]  # why not everything was compared
    ok: bool


class CheckReport(TypedDict):
    ok: bool
    complete: bool  # nothing was left out ("skipped" of the regions)
    first_divergence: Optional[str]
    regions: List[RegionCheck]
