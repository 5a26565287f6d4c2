"""A deployment of octavo.ray on one node: each request gets its own row, over HTTP and from Python; bad requests are answered with 400.

Skipped where ray[serve] is not installed; `make test-ray` installs it in an environment of its own."""
import json
import os
import pathlib
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

# A busy machine takes longer than Ray Serve's 5 and 60 seconds to start its processes.
os.environ.setdefault("RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S", "120")
os.environ.setdefault("RAY_worker_niceness", "0")  # Ray gives its workers the last turn (15), behind everything else here
ray = pytest.importorskip("ray", reason="ray is not installed (make test-ray)")
serve = pytest.importorskip("ray.serve", reason="ray[serve] is not installed (make test-ray)")
from ray.serve._private import api as serve_api  # noqa: E402

import octavo  # noqa: E402
import octavo.ray as octavo_ray  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
QDQ = ROOT / "examples/digits/digits_qdq.onnx"
PICTURE = sorted((ROOT / "examples/digits/images").glob("*.png"))[0]
QUICK = {"effort": 0, "timing_cache": ""}


@pytest.fixture(scope="module")
def engine():
    return octavo.build(QDQ, default_batch=1, threads=1, effort=0)


@pytest.fixture(scope="module")
def port():
    serve_api.HTTP_PROXY_TIMEOUT = 300
    ray.init(num_cpus=3, include_dashboard=False, object_store_memory=100 << 20, log_to_driver=False)
    serve.start(http_options={"host": "127.0.0.1", "port": 18431})
    yield 18431
    serve.shutdown()
    ray.shutdown()


def test_each_request_gets_its_own_row(port, engine):
    handle = serve.run(octavo_ray.deployment(QDQ.read_bytes(), batch=4, **QUICK), name="digits", route_prefix="/digits")
    rows = np.random.default_rng(3).uniform(0, 1, (60, 1, 16, 16)).astype(np.float32)
    pending = [handle.infer.remote({"image": row}) for row in rows[:40]]
    for row, answer in zip(rows, pending):
        np.testing.assert_array_equal(answer.result(timeout_s=120)["head"], engine.run([row[None]])["head"][0])

    def ask(body):
        request = urllib.request.Request(f"http://127.0.0.1:{port}/digits", data=body, headers={"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as e:
            return e.code, json.loads(e.read())

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda row: ask(json.dumps({"inputs": {"image": row.tolist()}}).encode()), rows[40:]))
    for row, (status, answer) in zip(rows[40:], answers):
        assert status == 200
        np.testing.assert_array_equal(np.float32(answer["head"]), engine.run([row[None]])["head"][0])
    for bad, said in ((b"{", "must be JSON"), (b'{"inputs": {"x": 1}}', "inputs are image"), (b'{"inputs": {"image": [1]}}', "has shape")):
        status, answer = ask(bad)
        assert status == 400 and said in answer["error"]
    picture = octavo_ray.deployment(QDQ.read_bytes(), "pictures", picture=True, **QUICK)
    serve.run(picture, name="pictures", route_prefix="/pictures")
    body = PICTURE.read_bytes()
    with urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{port}/pictures", data=body), timeout=120) as answer:
        np.testing.assert_array_equal(np.float32(json.loads(answer.read())["head"]), engine.run([octavo.preprocess(PICTURE, engine)])["head"][0])
