"""Plots of results: `python -m benchmarks plots OUT.svg FILE...`; the last line of each file is JSON of one benchmark.

`latency`: 95th percentile and RTFx by batch, a line for each model, precision and length. `peers`: speed of each engine
over NeMo's, a panel for each batch. `search`: speed of each form of the transducers' search over published label
looping's, by batch. `losses`: seconds and memory of a transducer's loss, by clips. `training_curve`: loss
and word error rate by minutes of training. `roofline`: stages of a batch on a GPU, calculated, a bar for each decoder.
`latency` and `losses` take several files. Needs matplotlib (the `plots` extra).
"""

import argparse
import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("agg")
from matplotlib import pyplot as plt  # after the backend without a screen is chosen
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

# Text stays text, and the same data gives the same file.
mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "steno"})

Document = dict[str, Any]

_OURS, _OTHERS = "#1b6e5c", "#b9c0c4"


def main() -> None:
    """Parse, draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, help=".svg or .png")
    parser.add_argument("files", type=Path, nargs="+")
    args = parser.parse_args()
    documents = [json.loads(path.read_text(encoding="utf-8").splitlines()[-1]) for path in args.files]
    benchmarks = {document["benchmark"] for document in documents}
    if len(benchmarks) > 1 or not benchmarks <= set(_PICTURES):
        parser.error(f"draw one of {', '.join(_PICTURES)}, not {' with '.join(sorted(benchmarks))}")
    if len(documents) > 1 and not benchmarks <= _OF_SEVERAL:
        parser.error(f"a picture of {benchmarks.pop()} is of one file")
    figure = _PICTURES[benchmarks.pop()](documents)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(args.out, metadata={"Date": None} if args.out.suffix == ".svg" else None)
    if args.out.suffix == ".svg":
        _shrink(args.out)


def _shrink(picture: Path) -> None:
    """Shrink matplotlib's SVG file to a third: styles as classes, one decimal, no unused groups."""
    svg, xlink = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
    ET.register_namespace("", svg)
    ET.register_namespace("xlink", xlink)
    root = ET.parse(picture).getroot()  # noqa: S314  # written by matplotlib just before
    used = set(re.findall(r"#(\w+)", picture.read_text(encoding="utf-8")))
    root.remove(root[0])  # metadata
    classes: dict[str, str] = {}
    for parent in [*root.iter()][::-1]:
        children: list[ET.Element] = []
        for child in parent:
            bare = child.tag == f"{{{svg}}}g" and not child.attrib
            children.extend(child if bare else [child])
        parent[:] = children
        if parent.get("id") not in used:
            parent.attrib.pop("id", None)
        if parent.get("transform", "").startswith("rotate(-0 "):
            del parent.attrib["transform"]
        if style := parent.attrib.pop("style", None):
            parent.set("class", classes.setdefault(style, f"c{len(classes)}"))
        for name in parent.attrib.keys() & {"d", "x", "y", "width", "height", "transform"}:
            rounded = re.sub(
                r"\d+\.\d+", lambda number: f"{float(number[0]):.1f}".removesuffix(".0"), parent.attrib[name]
            )
            parent.set(name, " ".join(rounded.split()))
        parent.tail = "\n"
        if parent.tag != f"{{{svg}}}text" and not (parent.text or "").strip():
            parent.text = None
    rules = root.find(f"{{{svg}}}defs/{{{svg}}}style")
    assert rules is not None
    rules.text = (rules.text or "") + "".join(f"\n.{name}{{{style}}}" for style, name in classes.items())
    picture.write_text(ET.tostring(root, encoding="unicode"), encoding="utf-8")


def _latency(documents: list[Document]) -> Figure:
    figure, (latency, speed) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for document in documents:
        for dtype, seconds in sorted({(row["dtype"], row["seconds"]) for row in document["rows"]}):
            rows = [row for row in document["rows"] if (row["dtype"], row["seconds"]) == (dtype, seconds)]
            model = Path(document["model"]).name.removesuffix(".nemo")
            name = f"{model} {document['decoder']} {dtype}, {seconds:g} s"
            batches = [row["batch"] for row in rows]
            latency.plot(batches, [1000 * row["p95"] for row in rows], marker="o", label=name)
            speed.plot(batches, [row["rtfx"] for row in rows], marker="o", label=name)
    latency.set_ylabel("latency, 95th percentile, ms")
    speed.set_ylabel("RTFx")
    for axes in (latency, speed):
        axes.set_xlabel("batch")
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_minor_formatter(NullFormatter())
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.grid(visible=True, alpha=0.3)
    speed.legend(fontsize="x-small")
    figure.suptitle(f"{documents[0]['device']}, {documents[0]['threads']} threads", fontsize="medium")
    return figure


def _peers(documents: list[Document]) -> Figure:
    document = documents[0]
    rows = document["rows"]
    batches = list(dict.fromkeys(row["batch"] for row in rows))
    figure, panels = plt.subplots(
        1, len(batches), figsize=(9, 4), layout="constrained", sharex=True, sharey=True, squeeze=False
    )
    bars = list(dict.fromkeys((row["head"], row["engine"]) for row in rows))
    # The slowest of each head first; a gap between heads.
    bars.sort(key=lambda bar: (bar[0], max(row["ratio"] for row in rows if (row["head"], row["engine"]) == bar)))
    places = {
        bar: place + list(dict.fromkeys(head for head, _ in bars)).index(bar[0]) for place, bar in enumerate(bars)
    }
    for axes, batch in zip(panels[0], batches, strict=True):
        _draw_ratios(axes, [row for row in rows if row["batch"] == batch], places)
        axes.set_title(f"batch {batch}", fontsize="medium")
        axes.set_yticks(list(places.values()), [f"{head.upper()}, {_engine(engine)}" for head, engine in places])
    figure.supxlabel(
        f"times as fast as NeMo: shape {document['shape']}, clips of {document['seconds']:g} s, float32 where no dtype "
        f"is named, {document['threads']} threads of {document['device']};\nmedian and range of {document['rounds']} "
        "rounds in turns",
        fontsize="small",
    )
    return figure


def _losses(documents: list[Document]) -> Figure:
    figure, (time, memory) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for document in documents:
        kinds = [(row["head"], row["engine"], row["dtype"]) for row in document["rows"]]
        for head, engine, dtype in sorted(set(kinds)):
            rows = [row for row, kind in zip(document["rows"], kinds, strict=True) if kind == (head, engine, dtype)]
            clips = [row["clips"] for row in rows]
            name = f"{engine}: {head.upper()}, {document['vocabulary']} labels, {dtype}"
            (line,) = time.plot(clips, [row["seconds"] for row in rows], marker="o", label=name)
            memory.plot(clips, [row["peak_mb"] for row in rows], marker="o", color=line.get_color())
            scores = [row["all_scores_mb"] for row in rows]
            memory.plot(clips, scores, color=line.get_color(), linestyle=":", linewidth=1)
    time.set_ylabel("seconds, forwards and backwards")
    memory.set_ylabel("peak, MB (dotted: all scores)")
    for axes in (time, memory):
        axes.set_xlabel("clips")
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.grid(visible=True, alpha=0.3)
    time.legend(fontsize="x-small")
    about = documents[0]
    figure.suptitle(
        f"clips of {about['seconds']:g} s: {about['device']}, {about['threads']} threads", fontsize="medium"
    )
    return figure


def _training_curve(documents: list[Document]) -> Figure:
    figure, panels = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for axes, key, name in zip(panels, ("loss", "wer"), ("loss of a label", "WER on dev, %"), strict=True):
        for run in documents[0]["runs"]:
            points = {float(minute): value for minute, value in run[key].items()}
            axes.plot(list(points), [100 * value if key == "wer" else value for value in points.values()],
                      marker=".", label=run["name"])  # fmt: skip
        axes.set_xlabel("minutes of training")
        axes.set_ylabel(name)
        axes.set_ylim(bottom=0)
        axes.grid(visible=True, alpha=0.3)
    panels[0].legend(fontsize="small")
    figure.suptitle(f"one core of {documents[0]['device']}", fontsize="medium")
    return figure


def _search(documents: list[Document]) -> Figure:
    document = documents[0]
    transducers = list(dict.fromkeys(row["transducer"] for row in document["rows"]))
    figure, panels = plt.subplots(
        1, len(transducers), figsize=(9, 3.2), layout="constrained", sharey=True, squeeze=False
    )
    for axes, transducer in zip(panels[0], transducers, strict=True):
        rows = [row for row in document["rows"] if row["transducer"] == transducer]
        batches = list(dict.fromkeys(row["batch"] for row in rows))
        forms = [form for form in dict.fromkeys(row["form"] for row in rows) if form != "label looping"]
        for number, form in enumerate(forms):
            ratios = [row["ratio"] for row in rows if row["form"] == form]
            places = [place + (number - (len(forms) - 1) / 2) * 0.8 / len(forms) for place in range(len(batches))]
            bars = axes.bar(places, ratios, width=0.75 / len(forms), label=form)
            axes.bar_label(bars, fmt="%.2f", fontsize="x-small")
        axes.set_xticks(range(len(batches)), [str(batch) for batch in batches])
        axes.set_xlabel("batch")
        axes.set_title(transducer.upper(), fontsize="medium")
        axes.axhline(1, color="black", linewidth=0.8, linestyle=":")
    panels[0][0].set_ylabel("times as fast as label looping")
    panels[0][-1].legend(fontsize="x-small")
    figure.suptitle(f"search alone, {document['clip_seconds']:g} s a row: {document['device']}", fontsize="medium")
    return figure


def _roofline(documents: list[Document]) -> Figure:
    (document,) = documents
    rows = document["rows"]
    decoders = list(dict.fromkeys(row["decoder"] for row in rows))
    stages = list(dict.fromkeys(row["name"] for row in rows))
    colours = [mpl.colormaps[name](place) for name in ("tab20", "tab20b") for place in range(20)]
    figure, axes = plt.subplots(figsize=(9, 0.7 * len(decoders) + 2.2), layout="constrained")
    ends = dict.fromkeys(decoders, 0.0)
    for stage, colour in zip(stages, colours, strict=False):
        taken = {row["decoder"]: 1000 * row["likely"] for row in rows if row["name"] == stage}
        axes.barh(
            list(taken), list(taken.values()), left=[ends[decoder] for decoder in taken], color=colour, label=stage
        )
        for decoder, milliseconds in taken.items():
            ends[decoder] += milliseconds
    axes.axvline(1000 * document["batch"] * document["seconds"] / document["goal"], color="black", linestyle=":")
    axes.set_xlabel(
        f"milliseconds, calculated: shape {document['shape']}, {document['batch']} clips of {document['seconds']:g} s "
        f"on {document['device']}; dotted: {document['goal']:,} RTFx"
    )
    axes.invert_yaxis()
    axes.legend(fontsize="x-small", ncols=5, loc="lower center", bbox_to_anchor=(0.5, 1))
    return figure


def _draw_ratios(axes: Axes, rows: list[Document], places: dict[tuple[str, str], int]) -> None:
    for row in rows:
        place, ratio = places[row["head"], row["engine"]], row["ratio"]
        is_ours = row["engine"].startswith("steno")
        axes.barh(place, ratio, color=_OURS if is_ours else _OTHERS)
        if not row["engine"].startswith("nemo"):
            reach = [[ratio - row["ratio_low"]], [row["ratio_high"] - ratio]]
            axes.errorbar(ratio, place, xerr=reach, color="black", linewidth=0.8, capsize=2)
        axes.text(0.03, place, f"{ratio:.2f}", va="center", fontsize="small", color="white" if is_ours else "black")
    axes.axvline(1, color="black", linewidth=0.8, linestyle=":")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _engine(engine: str) -> str:
    name, *dtype = engine.removesuffix(" float32").split()
    return " ".join([{"nemo": "NeMo", "steno": "Steno"}.get(name, name), *dtype])


_PICTURES = {
    "latency": _latency,
    "losses": _losses,
    "peers": _peers,
    "roofline": _roofline,
    "search": _search,
    "training_curve": _training_curve,
}
_OF_SEVERAL = {"latency", "losses"}


if __name__ == "__main__":
    main()
