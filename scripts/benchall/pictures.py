#!/usr/bin/env python3
"""Draws the pictures of README.md and docs/performance.md from the tables of the pages on performance.

Usage: pictures.py FOLDER PAGE...

Needs matplotlib; `scripts/bench-all --pictures` installs it into target/plot-venv. The pictures have a light panel, so that they are
readable on dark pages, too. The same tables give the same bytes.
"""
import os
import re
import sys

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot  # noqa: E402
from matplotlib.ticker import FuncFormatter, LogLocator  # noqa: E402

PANEL, INK, GRID = "#fbfaf7", "#24292f", "#d9d7d0"
OURS, PEER = "#0072b2", "#d55e00"
RC = {"svg.fonttype": "none", "svg.hashsalt": "diskwright", "font.family": "sans-serif", "font.size": 10, "text.color": INK,
      "axes.labelcolor": INK, "axes.edgecolor": INK, "xtick.color": INK, "ytick.color": INK, "axes.facecolor": PANEL,
      "figure.facecolor": PANEL, "axes.spines.top": False, "axes.spines.right": False}
FORMATS = {"ext4": "ext4", "xfs": "XFS"}


class Missing(Exception):
    """A table or a row that a picture needs is not in the pages."""


def number(cell):
    """Returns the value of a cell such as `572 k`, `1,000,000`, `0.07` or `0.0263 / 380 k`; None for an empty one."""
    cell = cell.split("/")[-1].strip()
    found = re.fullmatch(r"([0-9.,]+)( [kM])?", cell)
    if not found:
        return None
    return float(found[1].replace(",", "")) * {None: 1, " k": 1e3, " M": 1e6}[found[2]]


def rows(lines):
    """Returns the rows of the first table of these lines, each as a dictionary by column."""
    table = []
    for line in lines:
        if line.startswith("|"):
            table.append([cell.strip() for cell in line.strip().strip("|").split(" | ")])
        elif table:
            break
    if len(table) < 3:
        raise Missing("a table without rows")
    return [dict(zip(table[0], row)) for row in table[2:]]


def marked(text, name):
    """Returns the rows of the table between the marks of this name."""
    found = re.search(rf"<!-- table: {name} -->\n(.*?)<!-- end -->", text, re.DOTALL)
    if not found:
        raise Missing(f"no table {name}")
    return rows(found[1].splitlines())


def below(text, heading):
    """Returns the rows of the first table below a heading."""
    if heading not in text:
        raise Missing(f"no heading {heading!r}")
    return rows(text.split(heading, 1)[1].splitlines())


def creates(text):
    """Returns the points of both lines of each format: files of one directory, creates per second."""
    found = {"ext4": {OURS: [], PEER: []}, "xfs": {OURS: [], PEER: []}}
    for row in marked(text, "create") + marked(text, "create-large"):
        if row["format"] == "ext4":
            for colour, column in [(OURS, "Diskwright, files/s"), (PEER, "kernel, files/s")]:
                found["ext4"][colour].append((number(row["files"]), number(row[column])))
    for row in below(text, "### Ten million files in XFS"):
        for colour, column in [(OURS, "memory:xfs, s / rate"), (PEER, "kernel:xfs, s / rate")]:
            found["xfs"][colour].append((number(row["Files"]), number(row[column])))
    return found


def short(value, _):
    """Returns a power of ten as a label: 10 k, 1 M."""
    return f"{value / 1e6:g} M" if value >= 1e6 else f"{value / 1e3:g} k"


def draw_creates(text, path):
    points = creates(text)
    figure, panels = pyplot.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
    for axes, fs in zip(panels, FORMATS):
        for colour, name in [(OURS, "Diskwright"), (PEER, "Linux")]:
            line = [(x, y) for x, y in points[fs][colour] if y is not None]
            axes.plot(*zip(*line), "o-", color=colour, linewidth=2, markersize=4)
            axes.annotate(name, line[-1], xytext=(0, 8), textcoords="offset points", ha="right", color=colour, weight="bold")
        axes.set(xscale="log", yscale="log", xlim=(7e3, 1.5e7), ylim=(1e4, 1e6), title=FORMATS[fs], xlabel="files in one directory")
        axes.xaxis.set_major_locator(LogLocator(10))
        axes.xaxis.set_major_formatter(FuncFormatter(short))
        axes.yaxis.set_major_formatter(FuncFormatter(short))
        axes.grid(color=GRID, linewidth=0.8)
        axes.set_axisbelow(True)
    panels[0].set_ylabel("creates per second")
    save(figure, path)


def pairs(text):
    """Returns the bars: for each work, ours and a peer's seconds for each format."""
    tree = {row["image"]: row for row in marked(text, "images") if row["source"].startswith("tree")}
    build = [("ext4", number(tree["ext4"]["Diskwright, s"]), "mke2fs -d", number(tree["ext4"]["`mke2fs -d`, s"])),
             ("XFS", number(tree["XFS"]["Diskwright, s"]), "mkfs.xfs -p", number(tree["XFS"]["`mkfs.xfs -p`, s"]))]
    found = [("Build an image of /usr/share", build)]
    for title, table, own in [("Check 500,000 files", "check", "check, two threads"), ("Repair one damage", "check-repair", "repair")]:
        seconds = {(row["image"], row["program"]): number(row["median s"]) for row in marked(text, table)}
        peers = [("ext4", "e2fsck"), ("xfs", "xfs_repair")]
        found.append((title, [(FORMATS[fs], seconds[fs, own], peer, seconds[fs, peer]) for fs, peer in peers]))
    return found


def draw_peers(text, path):
    figure, panels = pyplot.subplots(1, 3, figsize=(9, 2.9), layout="constrained")
    for axes, (title, bars) in zip(panels, pairs(text)):
        labels, values, colours = [], [], []
        for fs, ours, peer, theirs in bars:
            labels += [f"{fs}: Diskwright", f"{fs}: {peer}"]
            values += [ours, theirs]
            colours += [OURS, PEER]
        if None in values:
            raise Missing(f"a time for: {title}")
        places = [0, 1, 2.5, 3.5]
        axes.barh(places, values, color=colours)
        for place, value in zip(places, values):
            axes.text(value, place, f" {value:g} s", va="center", fontsize=9)
        axes.set_yticks(places, labels, fontsize=9)
        axes.set(xlim=(0, max(values) * 1.3), xlabel="seconds")
        axes.set_title(title, fontsize=10)
        axes.invert_yaxis()
        axes.grid(axis="x", color=GRID, linewidth=0.8)
        axes.set_axisbelow(True)
    save(figure, path)


def save(figure, path):
    figure.savefig(path + ".new", format="svg", metadata={"Date": None, "Creator": None})
    pyplot.close(figure)
    with open(path + ".new", encoding="utf-8") as file:
        text = "\n".join(line.rstrip() for line in file.read().splitlines()) + "\n"
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(path + ".new", path)


def main():
    folder, *pages = sys.argv[1:]
    text = ""
    for page in pages:
        with open(page, encoding="utf-8") as file:
            text += file.read()
    os.makedirs(folder, exist_ok=True)
    matplotlib.rcParams.update(RC)
    status = 0
    for name, draw in [("creates", draw_creates), ("peers", draw_peers)]:
        try:
            draw(text, os.path.join(folder, f"{name}.svg"))
        except (Missing, KeyError) as error:
            print(f"pictures: {name}.svg is not drawn: {error}", file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
