"""docs/lab/parity.md and the README's summary from the results of bench/parity.py."""
import sys

import networks
import counterparts

LIMIT = 1.02


def interval(row):
    return f"{row['ratio']:.3f} [{row['low']:.3f}, {row['high']:.3f}]"


def cell(row):
    """One cell: the same plan, or the ratio with its interval, what a placement demands, and the ratio without it."""
    if row is None:
        return ""
    if "error" in row:
        return "failed"
    if "same" not in row:
        return f"{row['explicit_ms']:.2f} ms"
    if row["same"]:
        return f"same plan, {row['explicit_ms']:.2f} ms"
    if row["low"] <= LIMIT:
        return interval(row)
    if "demanded" not in row:
        return f"{interval(row)} **slower**"
    count, costly = len(row["demanded"]["roundings"]), row["demanded"]["costly"]["count"]
    if count == 0:
        return f"{interval(row)} **slower**, nothing demanded"
    tried = [without(row["without"], "them" if costly == count else f"{costly} of them")] if "without" in row else []
    tried += [without(row["without_all"], "all" if tried else "them")] if "without_all" in row else []
    return f"{interval(row)}, {demands(row['demanded']['roundings'])}; {'; '.join(tried)}{'' if explained(row) else ' **slower**'}"


def demands(found):
    """In words: roundings inside regions, and tensors kept in float32 beside their codes."""
    inside = sum(r.get("kind", "inside") == "inside" for r in found)
    words = [f"{inside} rounding{'s' if inside > 1 else ''}"] if inside else []
    return " + ".join(words + ([f"{len(found) - inside} float32"] if len(found) > inside else []))


def without(row, what):
    return f"without {what} the counterpart's plan" if row["same"] else f"without {what} {interval(row)}"


def explained(row):
    """Leaving out roundings that the placement demands reaches the limit."""
    return reaches(row.get("without")) or reaches(row.get("without_all"))


def reaches(row):
    return row is not None and (row["same"] or row["low"] <= LIMIT)


def main_table(results, nets, styles, threads):
    lines = ["| network | threads | " + " | ".join(styles) + " | implicit ÷ fastest explicit |", "|---" * (len(styles) + 3) + "|"]
    for net in nets:
        for t in threads:
            cells = [cell(results.get(f"{net}/{s}/{t}")) for s in styles]
            if any(cells):
                last = results.get(f"{net}/implicit/{t}")
                lines.append(f"| {net} | {t} | " + " | ".join(cells) + f" | {cell(last)}{' (' + last['fastest'] + ')' if last and 'fastest' in last else ''} |")
    return "\n".join(lines)


def times(row):
    """Two columns: a network without roundings, and the counterpart that took turns with it."""
    if row is None:
        return "– | –"
    return f"{row['explicit_ms']:.3f} ms | {'the same plan' if row['same'] else format(row['counterpart_ms'], '.3f') + ' ms'}"


def roundings_table(results, nets, styles, threads):
    lines = ["| network, style, threads | demanded | cost time | those regions with, without | explicit | counterpart | without those | counterpart | without all | counterpart | "
             "ONNX nodes of the first two that cost time |", "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---|"]
    for net in nets:
        for t in threads:
            for s in styles:
                row = results.get(f"{net}/{s}/{t}") or {}
                if not (found := row.get("demanded", {}).get("roundings")):
                    continue
                costly = row["demanded"]["costly"]
                dear = [r for r in found if r["costs_time"]]
                names = "; ".join(", ".join(f"`{n}`" for n in r["onnx_nodes"]) for r in dear[:2]) + ("; ..." if len(dear) > 2 else "")
                regions = f"{1e6 * costly['seconds_with']:.1f}, {1e6 * costly['seconds_without']:.1f} us" if "seconds_without" in costly and dear else "–"
                lines.append(f"| {net}, {s}, {t} | {demands(found)} | {costly['count']} | {regions} | {row['explicit_ms']:.3f} ms | {row['counterpart_ms']:.3f} ms | "
                             f"{times(row.get('without'))} | {times(row.get('without_all'))} | {names or '–'} |")
    return "\n".join(lines) if len(lines) > 2 else "None: no interval lies above the limit."


def checks_table(results, nets):
    lines = ["| network | style | bit-equal | float tolerance | not judged | differ | regions | of the counterpart | passes of their own |", "|---|---|---:|---:|---:|---:|---:|---:|---|"]
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
            lines.append(f"| {net} | {s} | {row['equal']} | {row['within']} | {row['unjudged']} | {row['differ']} | {row['regions']} | {row['counterpart_regions'] or '–'} | {passes} |")
    return "\n".join(lines)


TEXT = """# Explicit models against their implicit counterparts

Written by `bench/parity.py --write` from one run on {machine}. Pairs of processes took turns on {jobs} cores at a time, each pair on cores of its own; effort {effort}. `docs/lab/parity-method.md` describes the method.

- A cell is the ratio explicit ÷ counterpart: the median of {pairs} pairs of processes that take turns, and its 95 % interval. The counterpart is the float model with a table of the same scales.
- *same plan*: both models compile to plans with the same hash. The time is that of a run.
- If the whole interval is above {limit}, the cell says what the placement demands: *roundings* inside regions, and tensors that are stored in *float32* as well as in 8 bits, because an operator reads them without a pair.
- *without them the counterpart's plan*: without these, the network compiles to the counterpart's plan, hash for hash. So they explain the whole difference.
- Otherwise the cell gives the ratio without those that cost time, measured the same way. If that ratio is above {limit} too, the cell also gives the ratio without all of them. *slower* means that they do not explain the difference.
- The last column is the counterpart with every range, divided by the fastest explicit style of all seven.

{main}

{count}

## What the placements demand

This table has the cells whose interval lies above {limit}. Its columns:

- *demanded*: the roundings inside regions, and the tensors stored in float32 as well as in 8 bits.
- *cost time*: how many of them cost time (`docs/lab/parity-method.md` says how this is measured).
- *those regions with, without*: the regions that differ without those that cost time, each region timed alone.
- whole runs, each beside the counterpart that took turns with it: the explicit engine; the engine without those that cost time (`octavo explain --roundings --build-without`), unless the engine without all of them is the counterpart's plan; the engine
  without all of them (`--build-without-all`), if it is the counterpart's plan, or if the other was not measured or does not reach {limit}.

{roundings}

## All seven styles

`octavo check` compares each region with the reference on the region's own inputs, int8 results bit for bit. *Regions* are those of the engine, built as above. *Passes of their own* only move data, or change its type or scale, and are not at a network input
or output.

{checks}
"""


def count(results, nets, styles, threads):
    """In words: how many cells are what."""
    rows = [r for n in nets for t in threads for s in styles if (r := results.get(f"{n}/{s}/{t}")) and "same" in r]
    same = sum(r["same"] for r in rows)
    within = sum(not r["same"] and r["low"] <= LIMIT for r in rows)
    some = sum(reaches(r.get("without")) for r in rows)
    every = sum(explained(r) for r in rows) - some
    counterpart = sum(any(r.get(k, {}).get("same", False) for k in ("without", "without_all")) for r in rows)
    failed = sum("error" in r for n in nets for t in threads for s in styles if (r := results.get(f"{n}/{s}/{t}")))
    implicit = [r for n in nets for t in threads if (r := results.get(f"{n}/implicit/{t}")) and "same" in r]
    good = sum(r["same"] or r["low"] <= LIMIT for r in implicit)
    possible = sum(any(f"{n}/{s}/{t}" in results for s in styles) for n in nets for t in threads)
    absent = f", {possible - len(implicit)} not measured" if possible > len(implicit) else ""
    checks = [r for n in nets for s in (*networks.STYLES, *networks.MORE) if (r := results.get(f"{n}/{s}/check"))]
    equal = sum("error" not in r and r["differ"] == 0 and r["unjudged"] == 0 for r in checks)
    rest = len(rows) - same - within - some - every
    return (f"Of {len(rows)} cells, {same} compile to the same plan, and {within} more have an interval that reaches {LIMIT}. {some} cells reach it when the "
            f"roundings that cost time are left out, and {every} when all roundings are left out that the placement demands; {counterpart} of these {some + every} "
            f"are then the counterpart's plan. {rest} cells do not reach it{f', and {failed} failed' if failed else ''}. The implicit model against the fastest "
            f"of all styles: {good} of {len(implicit)} within {LIMIT}{absent}. Builds of which every region equals the reference: {equal} of {len(checks)}.")


def summary(results, nets, styles, threads):
    """The same for the README, in two sentences."""
    rows = [r for n in nets for t in threads for s in styles if (r := results.get(f"{n}/{s}/{t}")) and "same" in r]
    equal = sum(r["same"] or r["low"] <= LIMIT for r in rows)
    demanded = sum(not r["same"] and r["low"] > LIMIT and (reaches(r.get("without")) or explained(r)) for r in rows)
    return (f"In {equal} of {len(rows)} measured cases a model with Q/DQ nodes runs as fast (within {round(100 * LIMIT) - 100} %) as the same network without them, for which "
            f"the ranges come from a table. In {demanded} more cases the Q/DQ nodes demand additional roundings, and these cause the difference in time; "
            f"`octavo build --qdq permit` leaves such roundings out if the model becomes faster.")


def write(kept, nets, styles, threads):
    """docs/lab/parity.md, and the README's summary."""
    results = kept["results"]
    main = main_table(results, nets, styles, threads)
    text = TEXT.format(limit=LIMIT, main=main, count=count(results, nets, styles, threads), roundings=roundings_table(results, nets, styles, threads), checks=checks_table(results, nets),
                       **{k: kept[k] for k in ("machine", "effort", "pairs", "jobs")})
    (counterparts.ROOT / "docs/lab/parity.md").write_text(text, encoding="utf-8")
    readme = counterparts.ROOT / "README.md"
    begin, end = "<!-- parity:begin -->", "<!-- parity:end -->"
    content = readme.read_text(encoding="utf-8")
    if begin in content and end in content:
        head, rest = content.split(begin, 1)
        where = f"(Measured on {kept['machine']}, effort {kept['effort']}.)"
        readme.write_text(f"{head}{begin}\n{summary(results, nets, styles, threads)}\n{where}\n{end}" + rest.split(end, 1)[1], encoding="utf-8")
    else:
        print(f"README.md has no {begin} ... {end}: only docs/lab/parity.md was written", file=sys.stderr)
