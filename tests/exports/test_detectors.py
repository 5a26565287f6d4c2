"""torchvision's detectors with seeded weights, exported by PyTorch: as many boxes as a run finds, and the boxes that ONNX Runtime finds."""
import importlib.util

import numpy as np
import onnxruntime as ort
import pytest

import octavo

missing = [name for name in ("torch", "torchvision") if importlib.util.find_spec(name) is None]
pytestmark = pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")

SIZE = {"ssdlite320_mobilenet_v3_large": 320, "retinanet_resnet50_fpn": 128, "fasterrcnn_mobilenet_v3_large_320_fpn": 128}


def exported(name, path):
    """Random weights give all boxes scores of 1 and no area: each head is scaled so that its results spread."""
    import torch
    from torchvision.models import detection
    torch.manual_seed(0)
    small = {} if name.startswith("ssd") else {"min_size": SIZE[name], "max_size": SIZE[name]}
    model = getattr(detection, name)(weights=None, weights_backbone=None, num_classes=7, **small)
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() > 1:
                torch.nn.init.kaiming_normal_(p, nonlinearity="relu")
        for m in model.modules():
            if isinstance(m, torch.nn.BatchNorm2d):
                m.momentum = 0.5
        model.backbone.train()
        for _ in range(3):
            model.backbone(torch.randn(2, 3, SIZE[name], SIZE[name]))
        model.eval()
        heads = [(k, m) for k, m in model.named_modules() if k.endswith(("cls_logits", "bbox_pred", "bbox_reg", "cls_score"))]
        for _ in range(2):  # what the second stage reads follows from the first
            for key, m in heads:
                std = []
                hook = m.register_forward_hook(lambda _, __, y, std=std: std.append(float(y.std())))
                model([torch.rand(3, SIZE[name], SIZE[name])])
                hook.remove()
                m.weight.mul_((1.5 if "cls" in key else 0.2) / max(std[0], 1e-6))
    torch.onnx.export(model, ([torch.rand(3, SIZE[name], SIZE[name])],), str(path), dynamo=False, opset_version=17, input_names=["image"])


def unmatched(ours, theirs):
    """Boxes of theirs that ours lacks. Both are ordered by score, and boxes with scores that differ in their last bits may stand in either order."""
    left, absent = set(range(len(next(iter(theirs.values()))))), []
    for i in sorted(left):
        def same(j):
            return all(np.array_equal(ours[k][j], v[i]) if v.dtype.kind == "i" else np.allclose(ours[k][j], v[i], rtol=2e-3, atol=2e-3 * max(1.0, float(np.abs(v).max()))) for k, v in theirs.items())
        found = min((j for j in left if same(j)), key=lambda j: abs(j - i), default=None)
        if found is None or abs(found - i) > 4:
            absent.append((i, {k: v[i].tolist() for k, v in theirs.items()}))
        else:
            left.remove(found)
    return absent


@pytest.mark.parametrize("name", list(SIZE))
def test_as_many_boxes_as_there_are(name, tmp_path):
    exported(name, tmp_path / "m.onnx")
    session = ort.InferenceSession(str(tmp_path / "m.onnx"), providers=["CPUExecutionProvider"])
    engine = octavo.build(str(tmp_path / "m.onnx"), timing_cache="none", effort=0)
    rng = np.random.default_rng(1)
    counts = set()
    for strength in (1.0, 0.8, 0.6):
        x = (rng.random((3, SIZE[name], SIZE[name])) * strength).astype(np.float32)
        got = engine.run({"image": x})
        theirs = dict(zip([o.name for o in session.get_outputs()], session.run(None, {"image": x})))
        assert {k: v.shape for k, v in got.items()} == {k: v.shape for k, v in theirs.items()}
        counts.add(len(next(iter(theirs.values()))))
        assert unmatched(got, theirs) == []
    assert max(counts) > 0
