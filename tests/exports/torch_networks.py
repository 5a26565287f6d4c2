"""Small PyTorch networks with seeded weights, in the layers that models are built of. NETWORKS: {name: function -> (module, input shape)}."""
import torch
from torch import nn
from torch.nn import functional as F


class Residual(nn.Module):
    def __init__(self, cin, cout, stride=1):
        super().__init__()
        self.a = nn.Sequential(nn.Conv2d(cin, cout, 3, stride, 1, bias=False), nn.BatchNorm2d(cout), nn.ReLU())
        self.b = nn.Sequential(nn.Conv2d(cout, cout, 3, 1, 1, bias=False), nn.BatchNorm2d(cout))
        same = cin == cout and stride == 1
        self.skip = nn.Identity() if same else nn.Sequential(nn.Conv2d(cin, cout, 1, stride, bias=False), nn.BatchNorm2d(cout))
        self.relu = nn.ReLU()

    def forward(self, x):
        return self.relu(self.b(self.a(x)) + self.skip(x))


class ResidualCnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        self.blocks = nn.Sequential(Residual(16, 16), Residual(16, 32, 2))
        self.pool, self.head = nn.AdaptiveAvgPool2d(1), nn.Linear(32, 10)

    def forward(self, x):
        return self.head(torch.flatten(self.pool(self.blocks(self.stem(x))), 1))


class Inverted(nn.Module):
    """MobileNet's block, with squeeze and excitation where `squeeze` is set."""

    def __init__(self, c, wide, act, squeeze):
        super().__init__()
        self.expand = nn.Sequential(nn.Conv2d(c, wide, 1, bias=False), nn.BatchNorm2d(wide), act())
        self.depthwise = nn.Sequential(nn.Conv2d(wide, wide, 3, 1, 1, groups=wide, bias=False), nn.BatchNorm2d(wide), act())
        self.se = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(wide, 8, 1), nn.ReLU(), nn.Conv2d(8, wide, 1), nn.Hardsigmoid()) if squeeze else None
        self.project = nn.Sequential(nn.Conv2d(wide, c, 1, bias=False), nn.BatchNorm2d(c))

    def forward(self, x):
        y = self.depthwise(self.expand(x))
        if self.se is not None:
            y = y * self.se(y)
        return x + self.project(y)


class Mobile(nn.Module):
    def __init__(self, act, squeeze):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), act())
        self.blocks = nn.Sequential(Inverted(16, 32, act, squeeze), Inverted(16, 32, act, squeeze))
        self.pool, self.head = nn.AdaptiveAvgPool2d(1), nn.Linear(16, 10)

    def forward(self, x):
        return self.head(torch.flatten(self.pool(self.blocks(self.stem(x))), 1))


class UnetPiece(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Sequential(nn.Conv2d(1, 12, 3, padding=1), nn.ReLU())
        self.b = nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(12, 24, 3, padding=1), nn.LeakyReLU(0.1))
        self.d = nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(24, 24, 3, padding=1), nn.ReLU())
        self.up = nn.ConvTranspose2d(48, 12, 2, 2)
        self.c = nn.Sequential(nn.Conv2d(24, 12, 3, padding=1), nn.SiLU(), nn.Conv2d(12, 1, 1))

    def forward(self, x):
        a = self.a(x)
        b = self.b(a)
        up = self.up(torch.cat([F.interpolate(self.d(b), scale_factor=2.0, mode="nearest"), b], 1))
        return torch.sigmoid(self.c(torch.cat([up, a], 1)))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(32, 4, batch_first=True)
        self.norm1, self.norm2 = nn.LayerNorm(32), nn.LayerNorm(32)
        self.mlp = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32))
        self.head = nn.Linear(32, 10)

    def forward(self, x):
        y = self.norm1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return self.head((x + self.mlp(self.norm2(x))).mean(1))


class LstmClassifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.head = nn.LSTM(16, 24, num_layers=2, batch_first=True, bidirectional=True), nn.Linear(48, 10)

    def forward(self, x):
        return self.head(self.lstm(x)[0][:, -1])


class DetectionHead(nn.Module):
    """The 20 best boxes, by score; suppression is left to the caller, as in torch.onnx exports of YOLO heads."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 24, 3, 1, 1), nn.ReLU())
        self.boxes, self.scores = nn.Conv2d(24, 4, 1), nn.Conv2d(24, 3, 1)

    def forward(self, x):
        x = self.body(x)
        boxes = self.boxes(x).flatten(2).transpose(1, 2)
        scores, classes = torch.sigmoid(self.scores(x).flatten(2).transpose(1, 2)).max(2)
        best, index = torch.topk(scores, 20, dim=1)
        chosen = torch.gather(boxes, 1, index.unsqueeze(-1).expand(-1, -1, 4))
        corners = torch.cat([chosen[..., :2] - chosen[..., 2:].exp(), chosen[..., :2] + chosen[..., 2:].exp()], -1)
        return corners, best, torch.gather(classes, 1, index)


def trained(module, shape, seed):
    """Weights from a seed, BatchNormalization with statistics of its own, as after training; evaluation mode."""
    torch.manual_seed(seed)
    for m in module.modules():
        if isinstance(m, (nn.Conv2d, nn.ConvTranspose2d, nn.Linear)):
            nn.init.kaiming_normal_(m.weight)
        if isinstance(m, nn.BatchNorm2d):
            nn.init.uniform_(m.weight, 0.7, 1.3)
            nn.init.normal_(m.bias, 0, 0.1)
    module.train()
    with torch.no_grad():
        for _ in range(8):
            module(torch.randn((8, *shape[1:])))
    return module.eval(), shape


NETWORKS = {
    "residual_cnn": lambda: trained(ResidualCnn(), (1, 3, 24, 24), 1),
    "mobilenet_block": lambda: trained(Mobile(nn.ReLU6, False), (1, 3, 24, 24), 2),
    "se_block": lambda: trained(Mobile(nn.Hardswish, True), (1, 3, 24, 24), 3),
    "unet_piece": lambda: trained(UnetPiece(), (1, 1, 32, 32), 4),
    "transformer_block": lambda: trained(Transformer(), (1, 16, 32), 5),
    "lstm_classifier": lambda: trained(LstmClassifier(), (1, 4, 16), 6),
    "detection_head": lambda: trained(DetectionHead(), (1, 3, 24, 24), 7),
}
