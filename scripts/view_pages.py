"""The pages of docs/view.md, their sizes, load times and pictures: view_pages.py [--build DIR] [--data DIR] [--models DIR] [--pictures DIR] [NAME...]

Builds the page of each network with `octavo view`, opens it in headless Chromium (Debian: chromium, chromium-driver; Python: selenium), and
prints a row of the table in docs/view.md: regions, ONNX nodes, size of the page, seconds until it is drawn (median of three). --pictures:
also writes a PNG of each into this folder; times in them are of this machine, which should have no other work. --models: keeps the quantized networks
there, where bench/ keeps its own (build/everything/parity), so that they are not made again. Networks that need DIR of the test data are left out, with a word on stderr, where it is not there.
"""
import argparse
import io
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from PIL import Image

ROOT = pathlib.Path(__file__).resolve().parents[1]
DIGITS = ROOT / "examples/digits"
QUICK = ["--effort", "0", "--threads", "1"]
CLICK = "document.querySelector('.panel.plan g.node[data-key=\"region:{}\"]').dispatchEvent(new MouseEvent('click', {{bubbles: true}}))"
TAB = "document.querySelector('[data-tab=\"{}\"]').click()"


def chain(path, layers):
    """So many convolutions behind each other, with a residual Add every third one."""
    sys.path.insert(0, str(ROOT / "tests/cli"))
    from test_view import chain as make
    return make(path, layers)


def quantized(net, folder):
    """With Q/DQ pairs behind each layer; resnet50 has seeded weights."""
    sys.path.insert(0, str(ROOT / "bench"))
    import networks as bench
    return bench.explicit_model(argparse.Namespace(models=folder), net, "outputs")


def networks(data, folder, models):
    """name -> (arguments of `octavo view`, scripts to run before the picture)."""
    made = {
        "digits": lambda: ([DIGITS / "digits_qdq.onnx", "--profile"], [CLICK.format(3)]),
        "side-by-side": lambda: ([DIGITS / "digits_qdq.onnx", "--beside", DIGITS / "digits_fp32.onnx", "--profile"], [CLICK.format(3)]),
        "300-regions": lambda: ([chain(folder / "chain.onnx", 300)], [CLICK.format(150), TAB.format("memory")]),
        "yolox-nano": lambda: ([quantized("yolox_nano", models), "--profile"], [CLICK.format(48), TAB.format("memory")]),
        "mobilenet-v2": lambda: ([data / "models/mobilenetv2_qdq_perchannel_s8.onnx", "--profile"], [CLICK.format(9), TAB.format("regions")]),
        "resnet50": lambda: ([quantized("resnet50", models), "--profile"], [CLICK.format(20), TAB.format("memory")]),
    }
    return made


def browser():
    from selenium import webdriver
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or sys.exit("error: chromium is not installed")
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1500,950"):
        options.add_argument(argument)
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))


def load(driver, path):
    """Seconds from opening the page until everything is drawn."""
    begun = time.monotonic()
    driver.get(f"file://{path}")
    while (state := driver.execute_script("return document.documentElement.dataset.state")) is None and time.monotonic() < begun + 300:
        time.sleep(0.02)
    if state != "ready":
        sys.exit(f"error: {path}: {driver.execute_script('return document.getElementById(`problem`).textContent')}")
    return time.monotonic() - begun


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--data", type=pathlib.Path, default=pathlib.Path(os.environ.get("OCTAVO_TEST_DATA", ROOT / "../shared")))
    parser.add_argument("--models", type=pathlib.Path)
    parser.add_argument("--pictures", type=pathlib.Path)
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        driver = browser()
        print("| network | regions | ONNX nodes | page | drawn after |\n|---|---|---|---|---|")
        made = networks(args.data, folder, (args.models or folder).resolve())
        for name in args.names or made:
            if name not in made:
                sys.exit(f"error: no network {name!r}; there are {', '.join(made)}")
            if name in ("yolox-nano", "mobilenet-v2", "resnet50") and not (args.data / "models").exists():
                print(f"{name}: left out, {args.data} is not there", file=sys.stderr)
                continue
            arguments, scripts = made[name]()
            page = folder / f"{name}.html"
            subprocess.run([args.build / "bin/octavo", "view", *map(str, arguments), "-o", page, *QUICK], check=True, stderr=subprocess.DEVNULL)
            seconds = statistics.median(load(driver, page) for _ in range(3))
            plans = json.loads(re.search(r'id="data">(.*?)</script>', page.read_text(), re.S).group(1))
            regions, nodes = (" and ".join(str(len(x)) for x in (p["regions"] for p in plans)), len(plans[0].get("onnx", {"nodes": []})["nodes"]))
            print(f"| {name} | {regions} | {nodes} | {page.stat().st_size / 1e6:.2f} MB | {seconds:.1f} s |", flush=True)
            if args.pictures:
                for script in scripts:
                    driver.execute_script(script)
                    time.sleep(0.3)
                args.pictures.mkdir(parents=True, exist_ok=True)
                picture = Image.open(io.BytesIO(driver.get_screenshot_as_png())).convert("RGB")
                picture.quantize(256, Image.Quantize.MAXCOVERAGE).save(args.pictures / f"{name}.png", optimize=True)
        driver.quit()


if __name__ == "__main__":
    main()
