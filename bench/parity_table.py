"""docs/parity.md and the README's table from the results of bench/parity.py."""
import sys

import networks
import twins

LIMIT = 1.02


def cell(row):
    """One cell: the same plan, or the ratio with its interval and what a placement demands."""
    if row is None:
        return ""
    if "error" in row:
        return "failed"
    if "same" not in row:
        return f"{row['explicit_ms']:.2f} ms"
    if row["same"]:
        return f"same plan, {row['explicit_ms']:.2f} ms"
    text = f"{row['ratio']:.3f} [{row['low']:.3f}, {row['high']:.3f}]"
    if row["low"] <= LIMIT:
        return text
    more = len(row.get("demanded", {}).get("roundings", []))
    return f"{text}, {more} roundings more" if more else f"{text} **slower**"


def main_table(results, nets, styles, threads):
    lines = ["| network | threads | " + " | ".join(styles) + " | implicit ÷ fastest explicit |", "|---" * (len(styles) + 3) + "|"]
    for net in nets:
        for t in threads:
            cells = [cell(results.get(f"{net}/{s}/{t}")) for s in styles]
            if any(cells):
                last = results.get(f"{net}/implicit/{t}")
                lines.append(f"| {net} | {t} | " + " | ".join(cells) + f" | {cell(last)}{' (' + last['fastest'] + ')' if last and 'fastest' in last else ''} |")
    return "\n".join(lines)


def without(row):
    """Milliseconds forecast without the roundings: the explicit run less what the regions that differ cost more with them."""
    d = row["demanded"]
    return row["explicit_ms"] - 1e3 * (d["seconds_with"] - d["seconds_without"])


def roundings_table(results, nets, styles, threads):
    lines = ["| network, style, threads | roundings | explicit | forecast without | twin | ONNX nodes |", "|---|---:|---:|---:|---:|---|"]
    for net in nets:
        for t in threads:
            for s in styles:
                row = results.get(f"{net}/{s}/{t}") or {}
                found = row.get("demanded", {}).get("roundings", [])
                if not found:
                    continue
                names = "; ".join(", ".join(f"`{n}`" for n in r["onnx_nodes"]) for r in found[:2]) + ("; ..." if len(found) > 2 else "")
                forecast = f"{without(row):.3f} ms" if "seconds_without" in row["demanded"] else "-"
                lines.append(f"| {net}, {s}, {t} | {len(found)} | {row['explicit_ms']:.3f} ms | {forecast} | {row['twin_ms']:.3f} ms | {names} |")
    return "\n".join(lines) if len(lines) > 2 else "None: no interval lies above the limit."


def checks_table(results, nets):
    lines = ["| network | style | bit-equal | float tolerance | not judged | differ | regions | of the twin | passes of their own |", "|---|---|---:|---:|---:|---:|---:|---:|---|"]
    for net in nets:
        for s in (*networks.STYLES, *networks.MORE):
            row = results.get(f"{net}/{s}/check")
            if row is None:
                continue
            if "error" in row:
                lines.append(f"| {net} | {s} | failed | | | | | | |")
                continue
            kinds = [p["kind"] for p in row["passes"]]
            passes = ", ".join(f"{kinds.count(k)} {k}" for k in sorted(set(kinds))) or "none"
            lines.append(f"| {net} | {s} | {row['equal']} | {row['within']} | {row['unjudged']} | {row['differ']} | {row['regions']} | {row['twin_regions']} | {passes} |")
    return "\n".join(lines)


TEXT = """# Explicit models against their implicit twins

Written by `bench/parity.py --write` from one run on {machine}, {jobs} pairs of processes at a time on cores of their own; effort {effort}. *same plan*: the Q/DQ model and its
twin (the float model with a table of the same scales) compile to plans of one hash; the time is a run's. A ratio is explicit ÷ twin, median of
{pairs} pairs of processes that take turns, and its 95 % interval; where the interval has no value up to {limit}, the cell says how many
roundings the placement demands inside regions (the second table; `octavo explain --roundings` names all), or *slower* when it demands none. The last column is the
twin with every range over the fastest explicit style of all seven.

{main}

## What the placements demand

Cells whose interval lies above {limit}: the roundings inside regions, the time of a run, the same less what the regions cost more with the roundings
than without (each region measured alone; a forecast), and the twin, which is that network without them, measured in turns. The nodes are the
first two pairs'.

{roundings}

## All seven styles

`octavo check`: each region against the reference on its own inputs, int8 results bit for bit. *Regions* count the engine's, built as above. *Passes of their
own* only move data, or change its type or scale, and are not at a network input or output.

{checks}
"""


def write(kept, nets, styles, threads):
    """docs/parity.md, and the README's table."""
    results = kept["results"]
    main = main_table(results, nets, styles, threads)
    text = TEXT.format(limit=LIMIT, main=main, roundings=roundings_table(results, nets, styles, threads), checks=checks_table(results, nets),
                       **{k: kept[k] for k in ("machine", "effort", "pairs", "jobs")})
    (twins.ROOT / "docs/parity.md").write_text(text, encoding="utf-8")
    readme = twins.ROOT / "README.md"
    begin, end = "<!-- parity:begin -->", "<!-- parity:end -->"
    content = readme.read_text(encoding="utf-8")
    if begin in content and end in content:
        head, rest = content.split(begin, 1)
        readme.write_text(head + begin + "\n" + main + "\n" + end + rest.split(end, 1)[1], encoding="utf-8")
    else:
        print(f"README.md has no {begin} ... {end}: only docs/parity.md was written", file=sys.stderr)
