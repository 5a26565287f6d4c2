"""The results of bench/parity.py as text, and as the table and the sentence of a record, which docs/lab/parity.md and the README show."""
import figures
import networks

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
    """The same for the README, in two or three sentences. As fast: one plan, or the whole interval is below the limit."""
    rows = [r for n in nets for t in threads for s in styles if (r := results.get(f"{n}/{s}/{t}")) and "same" in r]
    equal = sum(r["same"] or r["high"] <= LIMIT for r in rows)
    unclear = sum(not r["same"] and r["low"] <= LIMIT < r["high"] for r in rows)
    demanded = sum(not r["same"] and r["low"] > LIMIT and (reaches(r.get("without")) or explained(r)) for r in rows)
    return (f"In {equal} of {len(rows)} measured cases a model with Q/DQ nodes runs as fast (within {round(100 * LIMIT) - 100} %) as the same network without them, for which "
            f"the ranges come from a table. {f'In {unclear} cases the intervals are too wide to tell. ' if unclear else ''}In {demanded} cases the Q/DQ nodes demand additional roundings, and these cause the "
            f"difference in time; `octavo build --qdq permit` leaves such roundings out if the model becomes faster.")


RECORDED = {"columns": [["plan", "plan"], ["explicit", "explicit, ms"], ["counterpart", "implicit, ms"], ["ratio", "explicit ÷ implicit"], ["demanded", "what the placement demands"],
                        ["without", "explicit without it, ms"], ["beside", "implicit beside that, ms"], ["rest", "without it ÷ implicit"]],
            "ratios": {"ratio": {"of": ["explicit"], "over": "counterpart", "words": ["slower", "level", "faster"]},
                       "rest": {"of": ["without"], "over": "beside", "words": ["slower", "level", "faster"]}}}


def recorded(results, nets, styles, threads):
    """(rows, view) for figures.record: a row a network, placement and number of threads."""
    rows, facts = {}, {}
    for net in nets:
        for t in threads:
            for s in styles:
                row = results.get(f"{net}/{s}/{t}")
                if not row or "same" not in row:
                    continue
                name = f"{net}, {s}, {t} thread{'s' * (t > 1)}"
                rows[name], facts[name] = {}, {"plan": "the same" if row["same"] else "another"}
                if not row["same"]:
                    rows[name] |= dict(zip(("explicit", "counterpart"), row["rounds"]))
                if found := row.get("demanded", {}).get("roundings"):
                    facts[name]["demanded"] = demands(found)
                    best = next((row[k] for k in ("without", "without_all") if reaches(row.get(k))), row.get("without_all") or row.get("without"))
                    if best and best["same"]:
                        facts[name]["without"] = "the same plan"
                    elif best:
                        rows[name] |= dict(zip(("without", "beside"), best["rounds"]))
            if (row := results.get(f"{net}/implicit/{t}")) and "same" in row:  # there "explicit" is the counterpart that has every range
                name = f"{net}, {row['fastest']} (the fastest) beside every range, {t} thread{'s' * (t > 1)}"
                rows[name], facts[name] = ({} if row["same"] else dict(zip(("counterpart", "explicit"), row["rounds"]))), {"plan": "the same" if row["same"] else "another"}
    if not any("demanded" in f for f in facts.values()):
        return rows, {**RECORDED, "columns": RECORDED["columns"][:4], "facts": facts}
    return rows, {**RECORDED, "facts": facts}


def record(kept, args):
    """docs/lab/records/NAME.json, with the README's sentence."""
    rows, view = recorded(kept["results"], args.nets, args.styles, args.threads)
    view["summary"] = summary(kept["results"], args.nets, args.styles, args.threads)
    figures.save(figures.record(kept, {"explicit beside implicit": rows}, views={"explicit beside implicit": view}), args.record)
