"""A model's configuration as Triton's clients read it (ModelConfig): what perf_analyzer and others ask for before they send requests."""
from typing import Any, Dict

from ._models import Version
from ._settings import Settings


def model_config(model: Version, settings: Settings) -> Dict[str, Any]:
    """In the names of Triton's model_config.proto. The batch is not among the dimensions where max_batch_size is above 0."""
    def tensors(rows: Any) -> Any:
        return [{"name": t["name"], "data_type": "TYPE_" + t["datatype"], "dims": t["shape"][1 if model.batched else 0:]} for t in rows]
    made: Dict[str, Any] = {
        "name": model.name, "platform": "octavo", "backend": "octavo", "version_policy": {"latest": {"num_versions": 1}},
        "max_batch_size": model.most if model.batched else 0, "input": tensors(model.metadata["inputs"]), "output": tensors(model.metadata["outputs"]),
        "instance_group": [{"name": model.name, "kind": "KIND_GPU" if settings.device.startswith("cuda") else "KIND_CPU", "count": settings.instances}],
        "default_model_filename": model.source.files[0].name}
    if model.batched:
        made["dynamic_batching"] = {"preferred_batch_size": model.sizes, "max_queue_delay_microseconds": int(settings.delay * 1e6)}
    return made
