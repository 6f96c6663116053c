#!/usr/bin/env python3
"""picture.py curve.csv PICTURE.svg [--over x|bytes|prefill]: accuracy against what was read, with 95 % intervals.
picture.py curve.csv PICTURE.svg --over layer: accuracy of the schedules oneHot, layer by layer.
picture.py policy.json PICTURE.svg: the published schedule of the smallest total budget, layer by layer.

x is S, a layer's reads; bytes the share of the keys' and values' bytes that decode steps read; prefill the share of blocks that a
prefill computes. Grey: dense attention, over layers the uniform schedule, whose interval is the band.
"""
import argparse
import csv
import json
import math

LAYERS = 28
COLOURS = ["#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22"]
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 920, 430, 56, 376, 34, 48


def rows_of(path):
    with open(path, newline="") as file:
        return [row for row in csv.DictReader(file) if row["task"] == "all"]


def place(row, over):
    if over == "x":
        return float(row["total_budget"]) / LAYERS
    return float(row["kv_bytes_share" if over == "bytes" else "prefill_density"]) * 100


def series_of(rows, over):
    series = {}
    for row in rows:
        sparse = row["prefill"] if over == "prefill" else row["method"]
        if sparse in ("dense", "") or row["schedule"].startswith("oneHot"):
            continue
        if over == "x" and float(row["total_budget"] or 0) == 0:
            continue
        name = sparse if over == "prefill" else row["method"]
        name += " learned" if row["schedule"] == "learned" else ""
        series.setdefault(name, []).append(
            (place(row, over), *(float(row[key]) for key in ("accuracy", "ci_low", "ci_high"))))
    return {name: sorted(points) for name, points in series.items()}


def nice(value):
    return f"{value:g}" if value >= 1 or value == 0 else f"{value:.2g}"


def picture(rows, over, title):
    series = series_of(rows, over)
    dense = next((row for row in rows if row["method"] == "dense" and row["prefill"] in ("", "dense")), None)
    xs = [point[0] for points in series.values() for point in points]
    low, high = math.log2(min(xs)) - .25, math.log2(max(max(xs), 100 if over != "x" else 0)) + .25

    def at_x(x):
        return LEFT + (math.log2(x) - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    def at_y(y):
        return TOP + (1 - y) * (HEIGHT - TOP - BOTTOM)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
           f'<text x="{LEFT}" y="20" font-size="14">{title}</text>']
    for tick in (0, .2, .4, .6, .8, 1):
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at_y(tick):.1f}" y2="{at_y(tick):.1f}" stroke="#ddd"/>'
                   f'<text x="{LEFT - 8}" y="{at_y(tick) + 4:.1f}" text-anchor="end">{tick:g}</text>')
    tick = 2.0 ** math.ceil(low)
    while math.log2(tick) <= high:
        label = nice(tick) + ("" if over == "x" else " %")
        out.append(f'<line x1="{at_x(tick):.1f}" x2="{at_x(tick):.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}" stroke="#eee"/>'
                   f'<text x="{at_x(tick):.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{label}</text>')
        tick *= 2 if high - low < 9 else 4
    what = {"x": "S, reads of a layer and head", "bytes": "bytes of keys and values read, share of dense",
            "prefill": "blocks computed, share of dense"}[over]
    out.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2:.0f}" y="{HEIGHT - 10}" text-anchor="middle">{what}</text>')
    if dense:
        lo, hi, acc = (at_y(float(dense[key])) for key in ("ci_low", "ci_high", "accuracy"))
        out.append(f'<rect x="{LEFT}" width="{WIDTH - LEFT - RIGHT}" y="{hi:.1f}" height="{lo - hi:.1f}" fill="#888" opacity=".15"/>'
                   f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{acc:.1f}" y2="{acc:.1f}" stroke="#666" stroke-dasharray="5 3"/>')
    legend = [("dense", "#666")] if dense else []
    for colour, (name, points) in zip(COLOURS, series.items()):
        legend.append((name, colour))
        path = " ".join(f"{at_x(x):.1f},{at_y(y):.1f}" for x, y, _, _ in points)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for x, y, lo, hi in points:
            out.append(f'<line x1="{at_x(x):.1f}" x2="{at_x(x):.1f}" y1="{at_y(lo):.1f}" y2="{at_y(hi):.1f}" stroke="{colour}" opacity=".4"/>'
                       f'<circle cx="{at_x(x):.1f}" cy="{at_y(y):.1f}" r="3.5" fill="{colour}"/>')
    for i, (name, colour) in enumerate(legend):
        y = TOP + 10 + 20 * i
        out.append(f'<line x1="{WIDTH - RIGHT + 14}" x2="{WIDTH - RIGHT + 34}" y1="{y}" y2="{y}" stroke="{colour}" stroke-width="2"/>'
                   f'<text x="{WIDTH - RIGHT + 40}" y="{y + 4}" font-size="11">{name}</text>')
    return "\n".join(out + ["</svg>", ""])


def bars(draws, title):
    width, step = WIDTH - 340, (WIDTH - 340 - LEFT) / len(draws)
    high = max(draws) + 1

    def at_y(y):
        return TOP + (1 - y / high) * (HEIGHT - TOP - BOTTOM)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width + 20} {HEIGHT}" font-family="sans-serif" font-size="12">',
           f'<rect width="{width + 20}" height="{HEIGHT}" fill="white"/>',
           f'<text x="{LEFT}" y="20" font-size="14">{title}</text>']
    for tick in range(high + 1):
        out.append(f'<line x1="{LEFT}" x2="{width}" y1="{at_y(tick):.1f}" y2="{at_y(tick):.1f}" stroke="#ddd"/>'
                   f'<text x="{LEFT - 8}" y="{at_y(tick) + 4:.1f}" text-anchor="end">{tick}</text>')
    for layer, count in enumerate(draws):
        x = LEFT + layer * step
        out.append(f'<rect x="{x + 2:.1f}" y="{at_y(count):.1f}" width="{step - 4:.1f}" height="{at_y(0) - at_y(count):.1f}" fill="{COLOURS[0]}"/>')
        if layer % 4 == 0:
            out.append(f'<text x="{x + step / 2:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{layer}</text>')
    uniform = at_y(sum(draws) / len(draws))
    out.append(f'<line x1="{LEFT}" x2="{width}" y1="{uniform:.1f}" y2="{uniform:.1f}" stroke="#666" stroke-dasharray="5 3"/>'
               f'<text x="{(LEFT + width) / 2:.0f}" y="{HEIGHT - 10}" text-anchor="middle">layer; dashed: uniform</text>')
    return "\n".join(out + ["</svg>", ""])


def one_hot(rows, title):
    hot = sorted((row for row in rows if row["schedule"].startswith("oneHot")), key=lambda row: row["schedule"])
    uniform = next(row for row in rows if row["schedule"] == "uniform")
    width, step = WIDTH - 340, (WIDTH - 340 - LEFT) / len(hot)

    def at_y(y):
        return TOP + (1 - float(y)) * (HEIGHT - TOP - BOTTOM)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width + 20} {HEIGHT}" font-family="sans-serif" font-size="12">',
           f'<rect width="{width + 20}" height="{HEIGHT}" fill="white"/>',
           f'<text x="{LEFT}" y="20" font-size="14">{title}</text>']
    for tick in (0, .2, .4, .6, .8, 1):
        out.append(f'<line x1="{LEFT}" x2="{width}" y1="{at_y(tick):.1f}" y2="{at_y(tick):.1f}" stroke="#ddd"/>'
                   f'<text x="{LEFT - 8}" y="{at_y(tick) + 4:.1f}" text-anchor="end">{tick:g}</text>')
    low, high, mean = (at_y(uniform[key]) for key in ("ci_low", "ci_high", "accuracy"))
    out.append(f'<rect x="{LEFT}" width="{width - LEFT}" y="{high:.1f}" height="{low - high:.1f}" fill="#888" opacity=".15"/>'
               f'<line x1="{LEFT}" x2="{width}" y1="{mean:.1f}" y2="{mean:.1f}" stroke="#666" stroke-dasharray="5 3"/>')
    for layer, row in enumerate(hot):
        x = LEFT + (layer + .5) * step
        out.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{at_y(row["ci_low"]):.1f}" y2="{at_y(row["ci_high"]):.1f}" stroke="{COLOURS[0]}" opacity=".4"/>'
                   f'<circle cx="{x:.1f}" cy="{at_y(row["accuracy"]):.1f}" r="3.5" fill="{COLOURS[0]}"/>')
        if layer % 4 == 0:
            out.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{layer}</text>')
    out.append(f'<text x="{(LEFT + width) / 2:.0f}" y="{HEIGHT - 10}" text-anchor="middle">layer with one read; dashed: all at 16</text>')
    return "\n".join(out + ["</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("curve")
    parser.add_argument("out")
    parser.add_argument("--over", choices=["x", "bytes", "prefill", "layer"], default="x")
    parser.add_argument("--title", default="")
    options = parser.parse_args()
    if options.curve.endswith(".json"):
        with open(options.curve) as file:
            drawn = bars(json.load(file)["frontier"][0]["learned_schedule"], options.title)
    elif options.over == "layer":
        drawn = one_hot(rows_of(options.curve), options.title)
    else:
        drawn = picture(rows_of(options.curve), options.over, options.title)
    with open(options.out, "w") as file:
        file.write(drawn)


if __name__ == "__main__":
    main()
