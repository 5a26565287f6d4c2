# Classifies pictures with a model of ten classes: the usual lines around InferenceSession. argv: model, pictures.
import sys

import numpy as np
import onnxruntime as ort
from PIL import Image

options = ort.SessionOptions()
options.intra_op_num_threads = 1
options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
session = ort.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
entry = session.get_inputs()[0]
assert entry.type == "tensor(float)" and entry.shape[1:] == [1, 16, 16]
for path in sys.argv[2:]:
    pixels = np.asarray(Image.open(path), np.float32)[None, None] / 255
    scores = session.run([session.get_outputs()[0].name], {entry.name: pixels})[0]
    print(path.rsplit("/", 1)[-1], int(scores.argmax()), f"{float(scores.max()):.2f}")
