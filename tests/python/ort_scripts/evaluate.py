# Accuracy over a folder whose files begin with their class, in batches, with the errors that such scripts handle. argv: model, folder.
import pathlib
import sys

import numpy as np
import onnxruntime as rt
from PIL import Image

session = rt.InferenceSession(pathlib.Path(sys.argv[1]).as_posix(), providers=["CPUExecutionProvider"])
assert session.get_providers() == ["CPUExecutionProvider"]
meta = session.get_modelmeta()
assert isinstance(meta.custom_metadata_map, dict)
input_name = session.get_inputs()[0].name
files = sorted(pathlib.Path(sys.argv[2]).glob("*.png"))[:24]
right = 0
for at in range(0, len(files), 8):
    batch = np.stack([np.asarray(Image.open(f), np.float32)[None] / 255 for f in files[at:at + 8]])
    logits, = session.run(None, {input_name: batch})
    right += sum(int(c) == int(f.name[0]) for c, f in zip(logits.argmax(axis=1), files[at:at + 8]))
print(f"{right} of {len(files)}")
try:
    session.run(None, {input_name: batch.astype(np.float64)})
except Exception as e:
    print("refused" if "float" in str(e) else e)
