# A batch through io_binding into an array of the caller's, and through OrtValues. argv: model.
import sys

import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession(open(sys.argv[1], "rb").read(), providers=onnxruntime.get_available_providers()[-1:])
x = np.random.default_rng(0).uniform(0, 1, (4, 1, 16, 16)).astype(np.float32)
name, output = session.get_inputs()[0].name, session.get_outputs()[0].name

room = onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros((4, 10), np.float32))
binding = session.io_binding()
binding.bind_cpu_input(name, x)
binding.bind_ortvalue_output(output, room)
session.run_with_iobinding(binding)

binding = session.io_binding()
binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(x))
binding.bind_output(output)
session.run_with_iobinding(binding)
bound = binding.copy_outputs_to_cpu()[0]

plain = session.run(None, {name: x}, onnxruntime.RunOptions())[0]
assert np.array_equal(room.numpy(), plain) and np.array_equal(bound, plain)
print(plain.shape, plain.dtype, [int(c) for c in plain.argmax(1)])
