"""A bar chart as SVG: groups of horizontal bars, one colour an engine, with the figure at the end of each bar."""
import html

COLOURS = ("#2f6f4f", "#b0762c", "#5b6ea8", "#888888")
BAR, GAP, LEFT, WIDTH, RIGHT, TOP = 15, 14, 230, 420, 150, 64


def bars(title, note, groups, names):
    """SVG text. `groups`: [(label, [(value, text) or None, one an engine])]; longest bar: the largest value. `names`: of the engines."""
    most = max(v for _, values in groups for v, _ in filter(None, values))
    out, y = [], TOP
    for label, values in groups:
        middle = y + BAR * len(values) / 2 + 4
        out.append(f'<text x="{LEFT - 10}" y="{middle:.0f}" text-anchor="end">{html.escape(label)}</text>')
        for colour, pair in zip(COLOURS, values):
            if pair:
                length = max(1.0, WIDTH * pair[0] / most)
                out.append(f'<rect x="{LEFT}" y="{y}" width="{length:.1f}" height="{BAR - 2}" fill="{colour}"/>')
                out.append(f'<text x="{LEFT + length + 6:.1f}" y="{y + BAR - 4}" class="n">{html.escape(pair[1])}</text>')
            y += BAR
        y += GAP
    width, x, key = LEFT + WIDTH + RIGHT, LEFT, []
    for colour, name in zip(COLOURS, names):
        key.append(f'<rect x="{x}" y="{TOP - 26}" width="12" height="12" fill="{colour}"/><text x="{x + 18}" y="{TOP - 16}">{html.escape(name)}</text>')
        x += 40 + 8 * len(name)
    style = "text{font:13px sans-serif;fill:#222}.n{font-size:11px;fill:#444}.t{font-size:15px;font-weight:bold}"
    head = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{y + 24}" viewBox="0 0 {width} {y + 24}">',
            f"<style>{style}</style>", f'<rect width="{width}" height="{y + 24}" fill="#fff"/>', f'<text x="10" y="22" class="t">{html.escape(title)}</text>']
    return "\n".join([*head, *key, *out, f'<text x="10" y="{y + 10}" class="n">{html.escape(note)}</text>', "</svg>", ""])
