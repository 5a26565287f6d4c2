"""`python -m octavo` is the command `octavo`: `python -m octavo build model.onnx -o model.octavo`."""
import os
import signal
import sys


def main() -> int:
    if sys.argv[1:2] == ["serve"]:
        from ._serve_command import main as serve
        return serve(sys.argv[2:])
    from ._octavo import _main
    os.environ.setdefault("OCTAVO_PYTHON", sys.executable)  # for --against onnxruntime and --metric FILE.py
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends it at once, as the compiled command
    sys.stdout.flush()
    return int(_main(sys.argv[1:]))


if __name__ == "__main__":
    sys.exit(main())
