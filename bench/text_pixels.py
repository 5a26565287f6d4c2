"""A metric for octavo eval --metric: intersection over union of the pixels that a text detector marks and those that the first model marks."""
THRESHOLD = 0.3  # as PaddleOCR's DBNet


def metric(outputs, reference, samples, labels):
    both = either = 0
    for ours, exact in zip(outputs, reference):
        for name, scores in ours.items():
            a, b = scores > THRESHOLD, exact[name] > THRESHOLD
            both += int((a & b).sum())
            either += int((a | b).sum())
    return both / either if either else 1.0
