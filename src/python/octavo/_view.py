"""Plans as pages to look at: octavo.view."""
import html
import json
import os
from typing import Any, Dict, List, Optional, Union

from ._errors import FileError, UsageError
from ._octavo import Engine, _view_document, _view_page

_Path = Union[str, "os.PathLike[str]"]


class Page(str):
    """An HTML page: a str, shown as itself in a notebook."""

    def save(self, path: _Path) -> None:
        """Writes the page. Raises FileError; a file that was there then stays as it was."""
        whole, part = os.fspath(path), f"{os.fspath(path)}.{os.getpid()}.part"
        try:
            try:
                with open(part, "w", encoding="utf-8") as file:
                    file.write(self)
                os.replace(part, whole)
            finally:
                if os.path.exists(part):
                    os.remove(part)
        except OSError as e:
            raise FileError(f'cannot write "{whole}": {e.strerror}') from e

    def _repr_html_(self) -> str:
        return f'<iframe srcdoc="{html.escape(self)}" style="width:100%;height:800px;border:1px solid #ccc"></iframe>'


def document(model: Any, profile: bool, runs: int, options: Dict[str, Any]) -> str:
    """One side of a page, as JSON text (docs/schema.md)."""
    from . import _build_options, _DEFAULTS, _known
    from . import profile as time_layers
    if not isinstance(model, Engine):
        made = _build_options(**{**_DEFAULTS, **_known(options)})
        data: Any = os.fspath(model) if not isinstance(model, (bytes, bytearray, memoryview)) and not hasattr(model, "SerializeToString") else (
            model.SerializeToString() if hasattr(model, "SerializeToString") else bytes(model))
        return _view_document(data, made, runs if profile else 0)
    if options:
        raise UsageError(f"view: {', '.join(sorted(options))}: an engine is built already\n  give the model that it was built from")
    text = model.explain(json=True)
    if not profile:
        return text
    times, found = time_layers(model, runs), json.loads(text)
    found["profile"] = {"runs": runs, "threads": model.threads, "median_seconds": times["median_ms"] * 1e-3, "least_seconds": times["min_ms"] * 1e-3,
                        "regions": [layer["median_ms"] * 1e-3 for layer in times["layers"]]}
    return json.dumps(found)


def view(model: Any, output: Optional[_Path] = None, *, beside: Any = None, profile: bool = False, runs: int = 20,
         accuracy: Optional[_Path] = None, beside_accuracy: Optional[_Path] = None, beside_options: Optional[Dict[str, Any]] = None,
         **options: Any) -> Page:
    """The plan of a model or an engine as one HTML page that needs no network (docs/view.md): the plan as a graph, the ONNX graph, working
    memory over time, and for each region why it is what it is.

    model     an Engine, or what build takes; then it is built with `options`, those of build (an open batch becomes 1), and the page has
              the ONNX graph, the laws and the roundings too, which an engine does not keep.
    output    where to write the page; None: nowhere.
    beside    a second model or engine, shown beside the first; built with beside_options, or with `options` where that is None.
    profile   True: regions are timed, `runs` times each on random inputs, instead of showing what the plan counted with.
    accuracy, beside_accuracy   what `octavo quantize --report` wrote about the model: signal to noise by layer.
    returns   the page: a str, shown as itself at the end of a notebook's cell; page.save(path) writes it.

    Raises what build raises; UsageError, InputError for a report of another model, FileError.
    """
    if int(runs) < 1:
        raise UsageError(f"view: runs={runs}, needs at least 1")
    if beside is None and (beside_accuracy is not None or beside_options is not None):
        raise UsageError("view: beside_accuracy and beside_options are about a second model; give it as beside")
    documents = [document(model, profile, int(runs), options)]
    if beside is not None:
        own = options if beside_options is None else beside_options
        documents.append(document(beside, profile, int(runs), {} if beside_options is None and isinstance(beside, Engine) else own))
    reports: List[str] = [_report(accuracy), _report(beside_accuracy)][:len(documents)]
    page = Page(_view_page(documents, reports, [os.fspath(accuracy or ""), os.fspath(beside_accuracy or "")][:len(documents)]))
    if output is not None:
        page.save(output)
    return page


def _report(path: Optional[_Path]) -> str:
    if path is None:
        return ""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError as e:
        raise FileError(f'cannot read report "{os.fspath(path)}": {e.strerror}') from e
