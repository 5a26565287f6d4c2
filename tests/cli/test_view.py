"""octavo view and explain --html: the page holds what explain says, names are data in it, bad input is refused by name, and a browser shows
it: loads, clicks, keys, search, filters, no error in its console, nothing fetched."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import time

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

ROOT = pathlib.Path(__file__).resolve().parents[2]
OCTAVO = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build/release")) / "bin/octavo"
DATA = pathlib.Path(os.environ.get("OCTAVO_TEST_DATA", ROOT / "../shared"))
QDQ, FP32 = (ROOT / "examples/digits" / f"digits_{form}.onnx" for form in ("qdq", "fp32"))
MOBILENET = DATA / "models/mobilenetv2_qdq_perchannel_s8.onnx"
QUICK = ["--effort", "0", "--threads", "1"]
HOSTILE = "</script><script>document.title='owned'</script><!--"


def octavo(*args, code=0):
    done = subprocess.run([OCTAVO, *map(str, args)], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=300)
    assert done.returncode == code, f"octavo {' '.join(map(str, args))}: exit {done.returncode}\n{done.stdout[-2000:]}{done.stderr}"
    return done.stderr if code else done.stdout


def data_of(page):
    """The documents inside a page."""
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S).group(1))


def chain(path, layers):
    """A model of so many convolutions, each with a residual Add every third one."""
    random = np.random.default_rng(1)
    nodes, weights, last, skip = [], [], "x", "x"
    for i in range(layers):
        weights.append(numpy_helper.from_array(random.uniform(-1, 1, (8, 8, 1, 1)).astype(np.float32), f"w{i}"))
        nodes.append(helper.make_node("Conv", [last, f"w{i}"], [f"c{i}"], name=f"conv{i}"))
        last = f"c{i}"
        if i % 3 == 2:
            nodes.append(helper.make_node("Add", [last, skip], [f"a{i}"], name=f"add{i}"))
            last = skip = f"a{i}"
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 8, 4, 4]) for n in ("x", last)]
    model = helper.make_model(helper.make_graph(nodes, "chain", ends[:1], ends[1:], weights), opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, path)
    return path


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """name -> path of a page."""
    folder = tmp_path_factory.mktemp("pages")
    model = onnx.load(QDQ)
    for node in model.graph.node:
        if node.name == "pw":
            node.name = HOSTILE
    onnx.save(model, folder / "hostile.onnx")
    out = {name: folder / f"{name}.html" for name in ("digits", "hostile", "two", "long", "broken")}
    octavo("view", QDQ, "-o", out["digits"], "--profile", "--runs", 2, *QUICK)
    octavo("view", folder / "hostile.onnx", "-o", out["hostile"], *QUICK)
    octavo("view", QDQ, "--beside", FP32, "-o", out["two"], *QUICK)
    octavo("view", chain(folder / "long.onnx", 300), "-o", out["long"], *QUICK)
    broken = data_of(out["digits"].read_text())
    del broken[0]["regions"]
    page = out["digits"].read_text()
    out["broken"].write_text(re.sub(r'(id="data">).*?(</script>)', lambda m: m.group(1) + json.dumps(broken) + m.group(2), page, count=1, flags=re.S))
    return out


def test_a_page_holds_what_explain_says(pages, tmp_path):
    plan = json.loads(octavo("explain", QDQ, "--json", *QUICK))
    page = pages["digits"].read_text()
    (shown,) = data_of(page)
    for field in ("plan_hash", "totals", "memory", "inputs", "outputs"):
        assert shown[field] == plan[field]
    for region, said in zip(shown["regions"], plan["regions"], strict=True):
        assert all(region[f] == said[f] for f in ("name", "precision", "tactic", "reason", "sources", "onnx_nodes"))
        assert [a["tactic"] for a in region["alternatives"]] == [a["tactic"] for a in said["alternatives"]]
    assert len(shown["profile"]["regions"]) == len(plan["regions"]) and shown["profile"]["runs"] == 2
    assert {n["name"] for n in shown["onnx"]["nodes"]} == {n.name for n in onnx.load(QDQ).graph.node}
    assert {r["tensor"] for r in shown["roundings"]} == {"conv1", "res2"}
    assert octavo("explain", QDQ, "--html", "-", *QUICK) == octavo("view", QDQ, "-o", "-", *QUICK)
    engine = tmp_path / "e.octavo"
    octavo("build", QDQ, "-o", engine, *QUICK)
    octavo("view", engine, "--graph", QDQ, "-o", tmp_path / "e.html")
    (kept,) = data_of((tmp_path / "e.html").read_text())
    assert kept["plan_hash"] == plan["plan_hash"] and "laws" not in kept and kept["onnx"]["nodes"]


def test_a_plan_goes_by_the_name_of_its_file(pages, tmp_path):
    """Graphs of exporters are called "main_graph" or "torch_jit", and both sides of a comparison often the same."""
    assert [d["file"] for d in data_of(pages["two"].read_text())] == ["digits_qdq.onnx", "digits_fp32.onnx"]
    (tmp_path / "saved plan.json").write_text(octavo("explain", QDQ, "--json", *QUICK))
    octavo("view", tmp_path / "saved plan.json", "-o", tmp_path / "p.html")
    assert data_of((tmp_path / "p.html").read_text())[0]["file"] == "saved plan.json"


def test_sources_follow_the_data(pages):
    """Each region reads from earlier ones, everything but the results is read, and memory in use at one time does not overlap."""
    for name in ("digits", "two", "long"):
        for plan in data_of(pages[name].read_text()):
            read = {s["region"] for r in plan["regions"] for s in r["sources"] if "region" in s}
            made = {i for o in plan["outputs"] for i in o["regions"]}
            assert all(s.get("region", -1) < r["index"] for r in plan["regions"] for s in r["sources"])
            assert all(r["sources"] for r in plan["regions"]) and made
            assert read | made == set(range(len(plan["regions"])))
            for a in plan["memory"]:
                assert 0 <= a["first"] <= a["last"] < len(plan["regions"]) and a["offset"] + a["bytes"] <= plan["arena_bytes"]
                for b in plan["memory"]:
                    apart = a["last"] < b["first"] or b["last"] < a["first"] or a["offset"] + a["bytes"] <= b["offset"] or b["offset"] + b["bytes"] <= a["offset"]
                    in_place = a["offset"] == b["offset"] and a["bytes"] == b["bytes"] and (a["last"] == b["first"] or b["last"] == a["first"])
                    assert a is b or apart or in_place


def test_a_slice_of_a_concatenation_has_its_own_maker(tmp_path):
    """conv1 and conv2 store channels side by side into each pixel of one buffer; conv3 and conv4 read one half each, and whichever runs
    later finds both stored."""
    random = np.random.default_rng(1)
    weights = [numpy_helper.from_array(random.uniform(-1, 1, (8, c, 1, 1)).astype(np.float32), f"w{i}") for i, c in enumerate((8, 8, 8, 8, 16))]
    nodes = [helper.make_node("Conv", [x, f"w{i}"], [y], name=f"conv{i + 1}") for i, (x, y) in enumerate(["xa", "xb", "ap", "bq"])]
    nodes += [helper.make_node("Concat", ["a", "b"], ["ab"], name="both", axis=1), helper.make_node("Conv", ["ab", "w4"], ["r"], name="conv5")]
    ends = {n: helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 8, 4, 4]) for n in "xpqr"}
    graph = helper.make_graph(nodes, "slices", [ends["x"]], [ends[n] for n in "pqr"], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), tmp_path / "m.onnx")
    plan = json.loads(octavo("explain", tmp_path / "m.onnx", "--json", *QUICK))
    conv = {i: next(r for r in plan["regions"] if r["name"].startswith(f"conv{i}")) for i in range(1, 6)}
    assert all("of 16" in conv[i]["stages"][0]["inputs"][0]["place"] for i in (3, 4)), "the test has its subject"
    makers = {i: {s["region"] for s in conv[i]["sources"]} for i in (3, 4, 5)}
    assert makers == {3: {conv[1]["index"]}, 4: {conv[2]["index"]}, 5: {conv[1]["index"], conv[2]["index"]}}


@pytest.mark.parametrize("name, most", [("digits", 400e3), ("two", 500e3), ("long", 1.5e6)])
def test_size(pages, name, most):
    assert 150e3 < pages[name].stat().st_size < most


def test_names_are_data(pages):
    page = pages["hostile"].read_text()
    assert page.count("</script") == pages["digits"].read_text().count("</script") == 2
    assert "<!--" not in page.replace("<!DOCTYPE", "") and HOSTILE in data_of(page)[0]["regions"][3]["name"]
    assert "Content-Security-Policy" in page and not re.search(r"""(src|href)\s*=\s*["'](?!data:)""", page.split('id="data">')[0])


def test_names_that_are_not_utf8(tmp_path):
    raw = QDQ.read_bytes().replace(b"conv1_dq", b"conv1\xff\xfe\xfd")
    (tmp_path / "raw.onnx").write_bytes(raw)
    octavo("view", tmp_path / "raw.onnx", "-o", tmp_path / "raw.html", *QUICK)
    assert "\ufffd" in (tmp_path / "raw.html").read_text(encoding="utf-8")


def test_accuracy(tmp_path):
    report = tmp_path / "report.json"
    report.write_text(json.dumps({"layers": [{"node": "pw", "sqnr_db": 31.5}, {"node": "elsewhere", "sqnr_db": 1.0}, {"node": "dw", "sqnr_db_nearest": 20.25}]}))
    octavo("view", QDQ, "-o", tmp_path / "p.html", "--accuracy", report, *QUICK)
    assert data_of((tmp_path / "p.html").read_text())[0]["accuracy"]["layers"] == [{"node": "pw", "sqnr_db": 31.5}, {"node": "dw", "sqnr_db": 20.25}]
    report.write_text(json.dumps({"layers": [{"node": "elsewhere", "sqnr_db": 1.0}]}))
    assert 'it is about "elsewhere"' in octavo("view", QDQ, "-o", tmp_path / "q.html", "--accuracy", report, *QUICK, code=5)
    assert not (tmp_path / "q.html").exists()


def plan_without(field):
    def change(plan):
        del plan["regions"][2][field]
    return change


def set_schema(plan):
    plan["schema"] = 99


def point_forward(plan):
    plan["regions"][1]["sources"] = [{"tensor": "t", "region": 7}]


@pytest.mark.parametrize("change, says", [(set_schema, '"schema": 99, needs 1'), (plan_without("sources"), 'region 2: "sources" is missing, needs array'),
                                          (point_forward, "region 1: a source that is no earlier region")])
def test_a_plan_that_is_none(change, says, tmp_path):
    plan = json.loads(octavo("explain", QDQ, "--json", *QUICK))
    (tmp_path / "p.json").write_text(json.dumps(plan))
    octavo("view", tmp_path / "p.json", "-o", tmp_path / "p.html")  # as it is, it is shown
    before = (tmp_path / "p.html").read_bytes()
    change(plan)
    (tmp_path / "p.json").write_text(json.dumps(plan))
    assert says in octavo("view", tmp_path / "p.json", "-o", tmp_path / "p.html", code=5)
    assert (tmp_path / "p.html").read_bytes() == before


def test_bad_input(tmp_path):
    text, deep = tmp_path / "t.json", tmp_path / "d.json"
    text.write_text("{ not JSON")
    deep.write_text('{"a":' + "[" * 100000)
    page = tmp_path / "p.html"
    assert "is not a JSON object" in octavo("view", text, "-o", page, code=5)
    assert "nested more than 64 deep" in octavo("view", deep, "-o", page, code=5)
    assert "--output is required" in octavo("view", QDQ, code=2)
    assert "cannot write" in octavo("view", QDQ, "-o", tmp_path / "absent/p.html", code=7)
    assert "is about a second plan" in octavo("view", QDQ, "-o", page, "--beside-calibration", "r", code=2)
    octavo("view", tmp_path / "absent.onnx", "-o", page, code=7)
    (tmp_path / "plan.json").write_text(octavo("explain", QDQ, "--json", *QUICK))
    assert "cannot be run" in octavo("view", tmp_path / "plan.json", "--profile", "-o", page, code=2)
    assert "--html: the page shows every region" in octavo("explain", QDQ, "--html", page, "--json", *QUICK, code=2)
    assert not page.exists()


def test_the_commands_of_the_page(tmp_path):
    """Those of docs/view.md as they stand there, but for advise, which measures: its result is put in its place."""
    shutil.copy(QDQ, tmp_path / "model.onnx")
    shutil.copy(QDQ, tmp_path / "explicit.onnx")
    shutil.copy(FP32, tmp_path / "float.onnx")
    done = [["convert", "model.onnx", "--to-table", "ranges.cache", "--approximate"], ["build", "model.onnx", "-o", "model.octavo", *QUICK]]
    shown = re.findall(r"^    octavo (.*)$", (ROOT / "docs/view.md").read_text(encoding="utf-8"), re.M)
    assert len(shown) == 5 and "advise model.onnx --apply faster.onnx" in shown
    # An engine file is built already: --effort has no effect on it, and is refused.
    done += [[*line.split(), *([] if line.split()[1].endswith(".octavo") else ["--effort", "0"])] for line in shown if not line.startswith("advise")]
    shutil.copy(QDQ, tmp_path / "faster.onnx")
    for arguments in done:
        run = subprocess.run([OCTAVO, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=300)
        assert run.returncode == 0, f"octavo {' '.join(arguments)}\n{run.stderr}"
    both = data_of((tmp_path / "both.html").read_text())
    assert both[1]["totals"]["int8_regions"] > 0, "the second model has the ranges that --beside-calibration names"


# In a browser.

class Browser:
    """One headless Chromium; `open` loads a page and waits until it says that it is drawn."""

    def __init__(self):
        from selenium import webdriver
        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium")
        for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1500,950"):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))

    def open(self, path, state="ready"):
        self.driver.get(f"file://{path}")
        end = time.monotonic() + 120
        while (now := self("return document.documentElement.dataset.state")) is None and time.monotonic() < end:
            time.sleep(0.05)
        assert now == state, self("return document.getElementById('problem').textContent")
        return self

    def __call__(self, script, *args):
        return self.driver.execute_script(script, *args)

    def all(self, selector):
        return self.driver.find_elements("css selector", selector)

    def text(self, selector):
        return self("return document.querySelector(arguments[0]).textContent", selector)

    def box(self, key):
        return self.all(f'.panel.plan g.node[data-key="{key}"]')[0]

    def press(self, *keys):
        from selenium.webdriver import ActionChains
        ActionChains(self.driver).send_keys(*keys).perform()

    def logged(self):
        return [entry["message"] for entry in self.driver.get_log("browser")]


@pytest.fixture(scope="module")
def browser():
    pytest.importorskip("selenium", reason="selenium is not installed")
    if not shutil.which("chromium") or not shutil.which("chromedriver"):
        pytest.skip("chromium or chromedriver is not installed")
    one = Browser()
    yield one
    one.driver.quit()


@pytest.mark.parametrize("name", ["digits", "hostile", "two", "long"])
def test_it_loads_alone(browser, pages, name):
    page = browser.open(pages[name])
    regions = [len(plan["regions"]) for plan in data_of(pages[name].read_text())]
    assert [len(page("return arguments[0].querySelectorAll('[data-key^=\"region:\"]')", p)) for p in page.all(".panel.plan")] == regions
    assert page.logged() == [] and page("return performance.getEntriesByType('resource').length") == 0
    assert page.driver.title.endswith("Octavo plan"), "a name became markup"


def test_click(browser, pages):
    page = browser.open(pages["digits"])
    page.box("region:3").click()
    shown = page.text("#details")
    plan = data_of(pages["digits"].read_text())[0]
    region = plan["regions"][3]
    for part in ("Region 3: pw", region["tactic"], region["reason"], "scale 0.0267673", "Kernels that were weighed", "Epilogue", *region["onnx_nodes"]):
        assert part in shown
    assert all(a["tactic"] in shown and a["reason"] in shown for a in region["alternatives"])
    assert {e.get_attribute("data-key") for e in page.all(".panel.onnx g.node.mate")} == {f"node:{n}" for n in region["onnx_nodes"]}
    page("document.querySelector('.panel.onnx g.node[data-key=\"node:dw\"]').dispatchEvent(new MouseEvent('click', {bubbles: true}))")
    assert "ONNX node dw" in page.text("#details") and page.box("region:2").get_attribute("class").split()[-1] == "mate"


def test_titles_are_files_and_boxes_show_operators(browser, pages, tmp_path):
    page = browser.open(pages["two"])
    assert page.text("#title") == "digits_qdq.onnx  |  digits_fp32.onnx" and page.driver.title.startswith("digits_qdq.onnx | digits_fp32.onnx")
    page = browser.open(pages["digits"])
    shown = [page("return arguments[0].querySelector('text.name').textContent", page.box(f"region:{i}")) for i in range(11)]
    assert shown[0].startswith("0: QuantizeLinear") and shown[2] == "2: Conv + Relu" and shown[5].startswith("5: Conv + Add"), shown  # boxes are as wide as their times
    octavo("build", QDQ, "-o", tmp_path / "e.octavo", *QUICK)
    octavo("view", tmp_path / "e.octavo", "-o", tmp_path / "e.html")  # an engine file holds no ONNX graph
    page = browser.open(tmp_path / "e.html")
    assert page("return arguments[0].querySelector('text.name').textContent", page.box("region:2")) == "2: conv"


def test_widths_are_times(browser, pages):
    page = browser.open(pages["digits"])
    times = data_of(pages["digits"].read_text())[0]["profile"]["regions"]
    widths = [page("return Number(arguments[0].querySelector('rect.fill').getAttribute('width'))", page.box(f"region:{i}")) for i in range(len(times))]
    assert all(w == pytest.approx(170 + 260 * t / max(times), abs=0.01) for w, t in zip(widths, times, strict=True))


def test_words_beside_colours(browser, pages):
    page = browser.open(pages["digits"])
    for i, region in enumerate(data_of(pages["digits"].read_text())[0]["regions"]):
        assert region["precision"] in page("return arguments[0].textContent", page.box(f"region:{i}"))
        assert region["precision"] in page.box(f"region:{i}").get_attribute("aria-label")


def test_search_and_filters(browser, pages):
    page = browser.open(pages["digits"])
    page.press("/", "res2")
    assert "1 found" in page.text("#found")
    page.press("\ue007")
    assert "Region 5: res2 + add" in page.text("#details")
    page.press("nothing like it")
    assert page.text("#found") == "nothing found"
    page.press("\ue00c")
    assert page.text("#found") == "" and not page.all("g.node.dim")
    page.all('[data-filter="roundings"]')[0].click()
    bright = {e.get_attribute("data-key") for e in page.all(".panel.plan g.node:not(.dim)")}
    assert bright == {"region:1", "region:5"}
    assert page.all('[data-filter="roundings"]')[0].get_attribute("aria-pressed") == "true"


def test_keys_alone(browser, pages):
    page = browser.open(pages["digits"])
    page("document.querySelector('.panel.plan g.node[tabindex=\"0\"]').focus()")
    page.press("\ue015", "\ue015")  # down
    assert page("return document.activeElement.dataset.key") == "region:1" and "Region 1:" in page.text("#details")
    page.press("\ue010")  # end
    assert page("return document.activeElement.dataset.key").startswith("output:")
    assert len(page.all('.panel.plan g.node[tabindex="0"]')) == 1, "one stop of the Tab key for a graph"


def test_sheets(browser, pages):
    page = browser.open(pages["digits"])
    page.all('[data-tab="regions"]')[0].click()
    page("[...document.querySelectorAll('#sheet th button')].find((b) => b.textContent === 'time').click()")
    plan = data_of(pages["digits"].read_text())[0]
    slowest = max(range(len(plan["regions"])), key=lambda i: plan["profile"]["regions"][i])
    row = page.all("#sheet tbody tr")[0]
    assert row.get_attribute("data-key") == f"region:{slowest}"
    row.click()
    assert f"Region {slowest}:" in page.text("#details")
    page.all('[data-tab="memory"]')[0].click()
    assert len(page.all("#sheet .memory rect")) == 1 + len(plan["memory"])


def test_memory_in_use_is_not_counted_twice(browser, pages, tmp_path):
    """Where a result stands in the place of an operand, both are in use there: a page whose buffers are all there twice says the same."""
    text = pages["long"].read_text()
    plans = data_of(text)
    plans[0]["memory"] = [b for b in plans[0]["memory"] for _ in range(2)]
    (tmp_path / "twice.html").write_text(re.sub(r'(id="data">).*?(</script>)', lambda m: m[1] + json.dumps(plans).replace("<", "\\u003c") + m[2], text, flags=re.S))
    said = []
    for path in (pages["long"], tmp_path / "twice.html"):
        page = browser.open(path)
        page.all('[data-tab="memory"]')[0].click()
        said.append(re.search(r"reserved; most in use at once ([\d.]+ \w+)", page.text("#sheet"))[1])
    assert said[0] == said[1]


def test_side_by_side(browser, pages):
    page = browser.open(pages["two"])
    assert len(page.all(".panel.plan")) == 2 and "difference" in page.text("#sheet thead")
    first, second = data_of(pages["two"].read_text())
    page.box("region:3").click()
    mates = {e.get_attribute("data-key") for e in page.all(".panel.plan")[1].find_elements("css selector", "g.node.mate")}
    assert mates == {f"region:{i}" for i, r in enumerate(second["regions"]) if "pw" in r["onnx_nodes"]} and mates
    assert first["regions"][3]["precision"] == "int8" and "float32" in page.text("#sheet tbody")


def test_a_page_that_cannot_be_shown_says_so(browser, pages):
    page = browser.open(pages["broken"], state="failed")
    assert "cannot show its plan" in page.text("#problem") and page.all("#problem")[0].is_displayed()
    page.logged()  # the error is expected there


@pytest.mark.skipif(not MOBILENET.exists(), reason="OCTAVO_TEST_DATA: the test data is not there")
def test_a_real_network(browser, tmp_path):
    octavo("view", MOBILENET, "-o", tmp_path / "m.html", *QUICK)
    page = browser.open(tmp_path / "m.html")
    assert (tmp_path / "m.html").stat().st_size < 1.5e6 and len(page.all(".panel.plan g.node")) > 50 and page.logged() == []
