"""Tables of open models from their records (bench/figures.py): kinds "first runs" (bench/first_run.py) and "requests" (bench/serve_text.py).

First runs: {row: {"shapes": [text], "first", "later", "first_processors", "later_processors": [milliseconds, one a shape], "beside": {shape: [ratios of rounds]}, "equal"}}.
Requests: {runtime: {class: [milliseconds of each request]}}.
"""
import math
import statistics


def first_runs(rows):
    """Markdown lines, and what they are of."""
    head = ["network, timing cache", "first shape of all, ms", "other new shapes", "first run minus a later one: median, ms", "worst, ms (shape)", "the same of processor time: median, worst, ms",
            "time beside an engine for exactly the shape: geometric mean, worst", "outputs equal"]
    lines = []
    for row, of in rows.items():
        first, *extra = [a - b for a, b in zip(of["first"], of["later"], strict=True)]
        processors = [a - b for a, b in zip(of["first_processors"], of["later_processors"], strict=True)][1:]
        worst = max(range(len(extra)), key=extra.__getitem__)
        ratios = [statistics.median(r) for r in of["beside"].values()]
        beside = f"{math.exp(statistics.fmean(map(math.log, ratios))):.3f}, {max(ratios):.3f} ({len(ratios)} shapes)" if ratios else "–"
        lines.append([row, f"{first:.1f} ({of['shapes'][0]})", str(len(extra)), f"{statistics.median(extra):.1f}", f"{extra[worst]:.1f} ({of['shapes'][worst + 1]})", f"{statistics.median(processors):.1f}, {max(processors):.1f}",
                      beside, f"{of['equal']} of {len(ratios)}" if ratios else "–"])
    return head, lines, "a later run is the median of those behind the first"


def requests(rows):
    from peer import NAMES
    head = ["tokens", *(f"{NAMES.get(r, r)}: requests, median ms, slowest ms, its ratio" for r in rows)]
    classes = sorted({k for of in rows.values() for k in of}, key=lambda k: int(k.split()[0]))
    lines = []
    for k in classes:
        cells = []
        for of in rows.values():
            found = of.get(k, [])
            cells.append(f"{len(found)}, {statistics.median(found):.1f}, {max(found):.1f}, {max(found) / statistics.median(found):.2f}" if found else "–")
        lines.append([f"{k}", *cells])
    return head, lines, "requests of one class have about one length; those of the first minute are left out"


KINDS = {"first runs": first_runs, "requests": requests}


def table(kind, rows):
    """Markdown without the line that says what it is of, and that line's end."""
    head, lines, said = KINDS[kind](rows)
    return "\n".join(["| " + " | ".join(head) + " |", "|---" + "|---:" * (len(head) - 1) + "|", *("| " + " | ".join(cells) + " |" for cells in lines)]), said
