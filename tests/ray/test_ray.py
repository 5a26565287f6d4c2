"""octavo.ray on a local cluster of several nodes: every row once, also when a node is lost; bad rows; answers of a deployment.

Skipped where ray is not installed; `make test-ray` installs it in an environment of its own."""
import os
import pathlib
import threading
import time

import numpy as np
import pytest

os.environ.setdefault("RAY_worker_niceness", "0")  # Ray gives its workers the last turn (15), behind everything else here
ray = pytest.importorskip("ray", reason="ray is not installed (make test-ray)")
pytest.importorskip("ray.data", reason="ray[data] is not installed (make test-ray)")

import octavo  # noqa: E402
import octavo.ray as octavo_ray  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
QDQ = ROOT / "examples/digits/digits_qdq.onnx"
PICTURES = sorted((ROOT / "examples/digits/images").glob("*.png"))
QUICK = {"effort": 0, "timing_cache": ""}


@pytest.fixture(scope="module")
def cluster():
    """A head without processors, which stays, and three nodes of one processor each."""
    from ray.cluster_utils import Cluster
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "object_store_memory": 100 << 20, "include_dashboard": False})
    for _ in range(3):
        made.add_node(num_cpus=1, object_store_memory=100 << 20)
    ray.init(address=made.address, log_to_driver=False)
    ray.data.DataContext.get_current().enable_progress_bars = False
    made.wait_for_nodes()
    yield made
    ray.shutdown()
    made.shutdown()


@pytest.fixture(scope="module")
def engine():
    return octavo.build(QDQ, default_batch=1, threads=1, effort=0)


def want_of(engine, picture):
    return engine.run([octavo.preprocess(picture, engine, preset=None)])["head"][0]


def test_pictures_of_a_folder(cluster, engine, tmp_path):
    """A file:// address goes the way of s3:// ones: listed and read by the file system that its scheme names."""
    data = ray.data.read_binary_files([f"file://{p}" for p in PICTURES[:40]], include_paths=True, override_num_blocks=5)
    found = data.map_batches(octavo_ray.Predictor, fn_constructor_args=[f"file://{QDQ}", 8],
                             fn_constructor_kwargs={"picture": "bytes", **QUICK}, batch_size=8, concurrency=2)
    found.write_parquet(str(tmp_path / "out"))
    rows = ray.data.read_parquet(str(tmp_path / "out")).take_all()
    assert sorted(pathlib.Path(r["path"]).name for r in rows) == sorted(p.name for p in PICTURES[:40])
    assert set(rows[0]) == {"path", "head"}
    for row in rows:
        np.testing.assert_array_equal(np.asarray(row["head"], np.float32), want_of(engine, PICTURES[0].parent / pathlib.Path(row["path"]).name))


def test_a_node_dies_in_mid_job(cluster, engine, tmp_path):
    """The node that ran first is killed; every row comes out exactly once with its own result, and other nodes had to help."""
    marks = tmp_path / "marks"
    marks.mkdir()

    class Slow(octavo_ray.Predictor):
        def __call__(self, batch):
            node = ray.get_runtime_context().get_node_id()
            (marks / f"{node}-{time.monotonic_ns()}").write_text(" ".join(map(str, batch["id"])))
            time.sleep(0.3)
            return super().__call__(batch)

    count = 240
    rng = np.random.default_rng(5)
    images = rng.uniform(0, 1, (count, 1, 16, 16)).astype(np.float32)
    extra = cluster.add_node(num_cpus=1, object_store_memory=100 << 20)
    cluster.wait_for_nodes()
    killed = []

    def kill():
        mine = extra.node_id
        while not any(p.name.startswith(mine) for p in marks.iterdir()):
            time.sleep(0.05)
        killed.append(len(list(marks.iterdir())))
        cluster.remove_node(extra, allow_graceful=False)

    killer = threading.Thread(target=kill, daemon=True)
    data = ray.data.from_items([{"id": i, "image": images[i]} for i in range(count)], override_num_blocks=30)
    killer.start()
    rows = data.map_batches(Slow, fn_constructor_args=[QDQ.read_bytes(), 8], fn_constructor_kwargs={"keep": ["id"], **QUICK}, batch_size=8,
                            concurrency=4).take_all()
    killer.join(60)
    assert killed and killed[0] < 30, "the node was to die before the job's end"
    assert sorted(r["id"] for r in rows) == list(range(count))
    for row in rows:
        np.testing.assert_array_equal(row["head"], engine.run([images[row["id"]][None]])["head"][0])
    ran = [p.read_text() for p in marks.iterdir()]
    print(f"{len(ran)} batches were begun for 30, the node died after {killed[0]}")


def test_a_damaged_picture():
    whole = PICTURES[0].read_bytes()
    batch = {"path": np.array(["a.png", "b.png"]), "bytes": np.array([whole, whole[:len(whole) // 2]], dtype=object)}
    with pytest.raises(octavo.InputError, match=r"^b\.png: "):
        octavo_ray.Predictor(QDQ.read_bytes(), 2, picture="bytes", **QUICK)(batch)
    found = octavo_ray.Predictor(QDQ.read_bytes(), 2, picture="bytes", errors="column", **QUICK)(batch)
    assert found["error"][0] == "" and np.isfinite(found["head"][0]).all()
    assert found["error"][1] and np.isnan(found["head"][1]).all()
    assert list(found["path"]) == ["a.png", "b.png"] and "bytes" not in found


def test_mistakes_are_named():
    data = QDQ.read_bytes()
    with pytest.raises(octavo.UsageError, match="errors='no'"):
        octavo_ray.Predictor(data, errors="no", **QUICK)
    with pytest.raises(octavo.UsageError, match="give the column of pictures"):
        octavo_ray.Predictor(data, preset="torch", **QUICK)
    with pytest.raises(octavo.UsageError, match="no input 'x'; it has image"):
        octavo_ray.Predictor(data, inputs={"x": "y"}, **QUICK)
    with pytest.raises(octavo.FileError, match="absent"):
        octavo_ray.Predictor("file:///absent.onnx")
    predictor = octavo_ray.Predictor(data, 4, **QUICK)
    with pytest.raises(octavo.InputError, match="no column 'image'; there are 'pixels'"):
        predictor({"pixels": np.zeros((3, 1, 16, 16), np.float32)})
    with pytest.raises(octavo.InputError, match="float64"):
        predictor({"image": np.zeros((3, 1, 16, 16))})
    assert predictor({"image": np.zeros((0, 1, 16, 16), np.float32)})["head"].shape == (0, 10)
    saved = octavo.build(QDQ, default_batch=3, threads=1, effort=0).tobytes()  # an engine file has a batch of its own
    assert octavo_ray.Predictor(saved)({"image": np.zeros((7, 1, 16, 16), np.float32)})["head"].shape == (7, 10)
    with pytest.raises(octavo.UsageError, match="an engine is built already"):
        octavo_ray.Predictor(saved, effort=0)
