"""The network, forwards and backwards, in numpy (NHWC, float64). Parameters are a dict of arrays; layouts are those of the functions here.

 image 16x16x1 - conv1 3x3 SiLU - pool 2x2 - dw 3x3 ReLU - pw 1x1 ReLU - [res1 3x3 ReLU - res2 3x3] + skip, ReLU = r    8x8x32
 r - down 3x3 stride 2 SiLU - up 2x2 transposed, stride 2, ReLU = u   8x8x16;   concat(r, u) - fuse 1x1 SiLU - pool 2x2 - mean - head   10
"""
import numpy as np
from exact import exp, matmul, sigmoid, total

SHAPES = {  # conv: [kh, kw, in, out]; depthwise: [kh, kw, channels]; transposed: [in, kh, kw, out]
    "conv1": (3, 3, 1, 16), "dw": (3, 3, 16), "pw": (1, 1, 16, 32), "res1": (3, 3, 32, 32), "res2": (3, 3, 32, 32),
    "down": (3, 3, 32, 48), "up": (48, 2, 2, 16), "fuse": (1, 1, 48, 32), "head": (1, 1, 32, 10),
}


def init(rng):
    params = {}
    for name, shape in SHAPES.items():
        fan = shape[0] if name == "up" else int(np.prod(shape[:2] if name == "dw" else shape[:3]))
        params[name] = (rng.random(shape) * 2 - 1) * np.sqrt(6.0 / fan)  # variance 2 / fan
        params[name + ".b"] = np.zeros(shape[-1])
    return params


def shifted(x, k, stride, size):
    """The k*k windows' elements: for each tap, x[:, i*stride + dy, j*stride + dx] of the padded input."""
    pad = k // 2
    p = np.pad(x, ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    return [p[:, dy : dy + stride * size : stride, dx : dx + stride * size : stride] for dy in range(k) for dx in range(k)]


def scatter(taps, k, stride, like):
    """The adjoint of `shifted`."""
    pad, size = k // 2, taps[0].shape[1]
    p = np.zeros((like.shape[0], like.shape[1] + 2 * pad, like.shape[2] + 2 * pad, like.shape[3]))
    for t, tap in enumerate(taps):
        dy, dx = divmod(t, k)
        p[:, dy : dy + stride * size : stride, dx : dx + stride * size : stride] += tap
    return p[:, pad : p.shape[1] - pad, pad : p.shape[2] - pad]


class Net:
    """One forward pass and, on demand, its gradients. `values` keeps every named tensor, for calibration."""

    def __init__(self, params):
        self.p, self.values, self.tape, self.grads = params, {}, [], {}

    def conv(self, name, x, stride=1):
        w, b = self.p[name], self.p[name + ".b"]
        k, size = w.shape[0], x.shape[1] // stride
        cols = np.concatenate(shifted(x, k, stride, size), axis=3).reshape(-1, k * k * x.shape[3])
        y = (matmul(cols, w.reshape(-1, w.shape[3])) + b).reshape(x.shape[0], size, size, -1)

        def back(dy):
            d = dy.reshape(-1, w.shape[3])
            self.grads[name], self.grads[name + ".b"] = matmul(cols.T, d).reshape(w.shape), total(d, 0)
            dcols = matmul(d, w.reshape(-1, w.shape[3]).T).reshape(x.shape[0], size, size, k * k, x.shape[3])
            return scatter([dcols[:, :, :, t] for t in range(k * k)], k, stride, x)

        return self.put(name, y), back

    def depthwise(self, name, x):
        w, b = self.p[name].reshape(9, -1), self.p[name + ".b"]
        taps = shifted(x, 3, 1, x.shape[1])
        y = b + sum(tap * w[t] for t, tap in enumerate(taps))

        def back(dy):
            self.grads[name] = np.stack([total(tap * dy, (0, 1, 2)) for tap in taps]).reshape(3, 3, -1)
            self.grads[name + ".b"] = total(dy, (0, 1, 2))
            return scatter([dy * w[t] for t in range(9)], 3, 1, x)

        return self.put(name, y), back

    def transposed(self, name, x):
        w, b = self.p[name], self.p[name + ".b"]
        n, s, _, c = x.shape
        o, flat = w.shape[3], x.reshape(-1, x.shape[3])
        y = matmul(flat, w.reshape(c, -1)).reshape(n, s, s, 2, 2, o).transpose(0, 1, 3, 2, 4, 5).reshape(n, 2 * s, 2 * s, o) + b

        def back(dy):
            d = dy.reshape(n, s, 2, s, 2, o).transpose(0, 1, 3, 2, 4, 5).reshape(-1, 4 * o)
            self.grads[name], self.grads[name + ".b"] = matmul(flat.T, d).reshape(w.shape), total(dy, (0, 1, 2))
            return matmul(d, w.reshape(c, -1).T).reshape(x.shape)

        return self.put(name, y), back

    def relu(self, name, x):
        return self.put(name, np.maximum(x, 0.0)), lambda dy: dy * (x > 0)

    def silu(self, name, x):
        s = sigmoid(x)
        return self.put(name, x * s), lambda dy: dy * (s * (1.0 + x * (1.0 - s)))

    def pool(self, name, x):
        n, s, _, c = x.shape
        cells = x.reshape(n, s // 2, 2, s // 2, 2, c).transpose(0, 1, 3, 5, 2, 4).reshape(n, s // 2, s // 2, c, 4)
        first = np.argmax(cells, axis=4)[..., None] == np.arange(4)

        def back(dy):
            return (dy[..., None] * first).reshape(n, s // 2, s // 2, c, 2, 2).transpose(0, 1, 4, 2, 5, 3).reshape(x.shape)

        return self.put(name, np.max(cells, axis=4)), back

    def put(self, name, y):
        while name in self.values:
            name += "_act"
        self.values[name] = y
        return y

    def forward(self, image):
        """image [n,16,16,1] -> logits [n,10]."""
        self.values["image"] = image
        a, self.conv1 = self.conv("conv1", image)
        a, self.act1 = self.silu("act1", a)
        a, self.pool1 = self.pool("pool1", a)
        a, self.dw = self.depthwise("dw", a)
        a, self.act2 = self.relu("act2", a)
        a, self.pw = self.conv("pw", a)
        skip, self.act3 = self.relu("act3", a)
        a, self.res1 = self.conv("res1", skip)
        a, self.act4 = self.relu("act4", a)
        a, self.res2 = self.conv("res2", a)
        r, self.act5 = self.relu("act5", self.put("add", a + skip))
        a, self.down = self.conv("down", r, stride=2)
        a, self.act6 = self.silu("act6", a)
        a, self.up = self.transposed("up", a)
        u, self.act7 = self.relu("act7", a)
        a, self.fuse = self.conv("fuse", self.put("concat", np.concatenate([r, u], axis=3)))
        a, self.act8 = self.silu("act8", a)
        a, self.pool2 = self.pool("pool2", a)
        a = self.put("mean", total(a, (1, 2)) / 16.0)
        y, self.head = self.conv("head", a[:, None, None, :])
        return y[:, 0, 0, :]

    def backward(self, dy):
        """Gradients of all parameters, given the gradient of the logits."""
        d = self.head(dy[:, None, None, :])
        d = np.broadcast_to(d / 16.0, (len(dy), 4, 4, 32))
        d = self.fuse(self.act8(self.pool2(d)))
        r, u = d[..., :32], d[..., 32:]
        r = r + self.down(self.act6(self.up(self.act7(u))))
        r = self.act5(r)
        skip = r + self.res1(self.act4(self.res2(r)))
        self.conv1(self.act1(self.pool1(self.dw(self.act2(self.pw(self.act3(skip)))))))
        return self.grads


def softmax(y):
    e = exp(y - np.max(y, axis=1, keepdims=True))
    return e / total(e, 1)[:, None]
