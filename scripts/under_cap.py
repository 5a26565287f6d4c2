"""Runs a part of the suite under one cap of the CPU's vector instructions: under_cap.py CAP BUILD_DIR

CAP: portable, avx2, avx512, avx512vnni or amx. First a test that the cap is hit: that tactics of exactly this level are offered, run, and give the bits
of the portable ones. A processor that lacks the level cannot run it: the run is skipped (exit status 77) and says so, but for AMX on a processor with
AVX-512 VNNI, where the kernels run on emulated tiles: one alone, and all in the networks of test_cases (the cases, the digits network, random ones), each of which asserts that
products of tiles ran. (Without OCTAVO_CPU the cap is amx: the suite itself runs every "*/emulated_amx" of test_cpu in the same way.)
Then whole networks against the reference, plans, cases, engines and threads. Exit status 1
if a test fails, if a program runs no test, or if everything of it is skipped. `ctest -L caps` runs all caps; each takes some seconds.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

CAPS = ("portable", "avx2", "avx512", "avx512vnni", "amx")
HIT = ("test_engine", "CapHit.*")
EMULATED_HIT = ("test_cpu", "On/GeneratedConv.ChannelAndPixelTails/emulated_amx")
EMULATED = (EMULATED_HIT, ("test_cases", "*"))
SUITE = (("test_engine", "Caps.*:Engine*:Context*"), ("test_cases", "*"), ("test_api", "Check.*:Images.SameBits*:"
         "*RealModel.*/mobilenetv2_qdq_perchannel_s8:*RealModel.*/tinycnn_cifar_qoperator:*RealModel.*/resnet20_cifar10_fp32"))


def run(build, cap, program, tests):
    """(passed, failed, skipped), reasons of the skips, and the output."""
    with tempfile.NamedTemporaryFile(suffix=".json") as report:
        done = subprocess.run([build / "tests" / program, f"--gtest_filter={tests}", f"--gtest_output=json:{report.name}"], capture_output=True, text=True,
                              env={**os.environ, "OCTAVO_CPU": cap}, check=False, timeout=600)
        text = pathlib.Path(report.name).read_text(encoding="utf-8")
    if not text:
        return (0, 1, 0), [], f"{program} ended with {done.returncode}\n{done.stdout[-3000:]}{done.stderr[-1000:]}"
    cases = [c for s in json.loads(text)["testsuites"] for c in s["testsuite"]]
    skipped = [c for c in cases if c.get("result") == "SKIPPED" or "skipped" in c]
    failed = [c for c in cases if "failures" in c]
    lines = done.stdout.splitlines()
    reasons = {lines[i + 1].strip() for i, line in enumerate(lines[:-1]) if line.endswith(": Skipped")}
    counts = (len(cases) - len(skipped) - len(failed), len(failed) + (done.returncode != 0 and not failed), len(skipped))
    return counts, sorted(reasons), done.stdout[-6000:] + done.stderr[-1000:]


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in CAPS:
        sys.exit(f"usage: under_cap.py {'|'.join(CAPS)} BUILD_DIR")
    cap, build, failed = sys.argv[1], pathlib.Path(sys.argv[2]).resolve(), False
    (passed, wrong, _), reasons, text = run(build, cap, *HIT)
    suite = SUITE
    if passed == 0 and not wrong:
        found = run(build, cap, *EMULATED_HIT) if cap == "amx" else ((0, 0, 0), [], "")
        if found[0][0] == 0 and found[0][1] == 0:
            print(f"skipped: {'; '.join(reasons) or 'the cap cannot be hit here'}")
            sys.exit(77)
        suite = EMULATED
    elif wrong:
        print(f"the cap {cap} is not hit\n{text}")
        sys.exit(1)
    for program, tests in suite:
        (passed, wrong, left), reasons, text = found if (program, tests) == EMULATED_HIT else run(build, cap, program, tests)
        print(f"OCTAVO_CPU={cap} {program}: {passed} passed, {wrong} failed, {left} skipped{': ' + '; '.join(reasons) if reasons else ''}", flush=True)
        if wrong or not passed:
            failed = True
            print(f"{text}\nrepeat: OCTAVO_CPU={cap} {build / 'tests' / program} --gtest_filter='{tests}'")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
