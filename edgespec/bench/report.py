"""From records of a bench to a Markdown table and plots: medians over the rounds with their ranges, losses included."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edgespec.extras import extra

__all__ = ["plots", "pyplot", "table"]

Record = dict[str, Any]
_PARTS = ("compute", "waiting", "drafting", "callbacks")


def table(records: Sequence[Record], size: int) -> str:
    """One line per cap and configuration; `size` is the target file's, caps are shown as shares of it."""
    lines = [
        "| cap | configuration | tokens/s | range | x stock | x server | tokens/pass | of ceiling | predicted | first token "
        "| peak/cap |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for cap in _caps(records):
        rates = {name: _rates(records, cap, name) for name in _names(records)}
        for name, values in rates.items():
            runs = [record for record in records if record["cap"] == cap and record["name"] == name]
            if not values:
                lines.append(f"| {cap / size:.0%} | {name} | failed: {runs[0].get('error', '')} |" + " |" * 8)
                continue
            middle = statistics.median(values)
            lines.append(
                f"| {cap / size:.0%} | {_label(runs[0])} | {middle:.2f} | {min(values):.2f}-{max(values):.2f} | "
                f"{_ratio(middle, rates.get('stock'))} | {_ratio(middle, rates.get('llama-server'))} | {_per_pass(runs)} | "
                f"{_share(runs, 'ceiling')} | {_predicted(runs)} | {_first(runs):.2f} s | "
                f"{max(run['peak'] for run in runs) / cap:.2f} |"
            )
    return "\n".join(lines) + "\n"


def plots(records: Sequence[Record], size: int, out: Path, title: str) -> list[Path]:
    """Two PNGs beside `out`: tokens/s against the cap, and where a sweep's time goes. Raises UsageError without matplotlib."""
    return [_rate_plot(records, size, out.with_suffix(".png"), title), _time_plot(records, size, out, title)]


def pyplot() -> Any:
    """The part of matplotlib that draws, here into files alone. Raises UsageError without it."""
    with extra("bench"):
        import matplotlib
        from matplotlib import pyplot
    matplotlib.use("Agg")
    return pyplot


def _rate_plot(records: Sequence[Record], size: int, path: Path, title: str) -> Path:
    figure, axes = pyplot().subplots(figsize=(8, 4.5))
    for name in _names(records):
        caps = [cap for cap in _caps(records) if _rates(records, cap, name)]
        middles = [statistics.median(_rates(records, cap, name)) for cap in caps]
        low = [middle - min(_rates(records, cap, name)) for middle, cap in zip(middles, caps, strict=True)]
        high = [max(_rates(records, cap, name)) - middle for middle, cap in zip(middles, caps, strict=True)]
        axes.errorbar([100 * cap / size for cap in caps], middles, yerr=[low, high], marker="o", capsize=3, label=name)
    axes.set(xlabel="memory cap, % of the target's file", ylabel="tokens/s", ylim=(0, None))
    return _save(figure, axes, path, title)


def _time_plot(records: Sequence[Record], size: int, out: Path, title: str) -> Path:
    ours = [record for record in records if record.get("passes")]
    bars = [(cap, name) for cap in _caps(ours) for name in _names(ours)]
    figure, axes = pyplot().subplots(figsize=(8, 4.5))
    left = [0.0] * len(bars)
    for part in _PARTS:
        widths = [_part(ours, cap, name, part) for cap, name in bars]
        axes.barh([f"{name}, {cap / size:.0%}" for cap, name in bars], widths, left=left, label=part)
        left = [a + b for a, b in zip(left, widths, strict=True)]
    axes.set(xlabel="milliseconds per sweep and its drafting")
    axes.invert_yaxis()
    return _save(figure, axes, out.with_name(f"{out.stem}-sweep.png"), title)


def _save(figure: Any, axes: Any, path: Path, title: str) -> Path:
    axes.set_title(title, fontsize=7)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    return path


def _part(records: Sequence[Record], cap: int, name: str, part: str) -> float:
    """Milliseconds per pass, the median over the rounds."""
    values = []
    for record in records:
        if record["cap"] == cap and record["name"] == name:
            spent = record["seconds"]
            known = {"waiting": spent["wait"], "drafting": spent["draft"] + spent["idle"], "callbacks": spent["callback"]}
            known["compute"] = max(0.0, spent["decode"] - sum(known.values()))
            values.append(1e3 * known[part] / record["passes"])
    return statistics.median(values) if values else 0.0


def _caps(records: Sequence[Record]) -> list[int]:
    return sorted({record["cap"] for record in records}, reverse=True)


def _names(records: Sequence[Record]) -> list[str]:
    return list(dict.fromkeys(record["name"] for record in records))


def _rates(records: Sequence[Record], cap: int, name: str) -> list[float]:
    return [r["tokens_per_second"] for r in records if r["cap"] == cap and r["name"] == name and "tokens_per_second" in r]


def _label(run: Record) -> str:
    drafting = run["name"] in ("llama-server", "chain", "tree")
    return f"{run['name']}, {run['nodes']} drafts" if drafting else str(run["name"])


def _ratio(rate: float, base: list[float] | None) -> str:
    return f"{rate / statistics.median(base):.1f}x" if base else "-"


def _per_pass(runs: Sequence[Record]) -> str:
    values = [run["generated"] / run["passes"] for run in runs if run.get("passes")]
    return f"{statistics.median(values):.2f}" if values else "-"


def _share(runs: Sequence[Record], of: str) -> str:
    """What was measured as a share of what was computed from calibrated costs."""
    values = [run["tokens_per_second"] / run[of] for run in runs if run.get(of) and "tokens_per_second" in run]
    return f"{statistics.median(values):.0%}" if values else "-"


def _predicted(runs: Sequence[Record]) -> str:
    """The range of tokens per second that was told before, its ends' medians."""
    ranges = [run["predicted"] for run in runs if run.get("predicted")]
    if not ranges:
        return "-"
    low, high = (statistics.median(ends) for ends in zip(*ranges, strict=True))
    return f"{low:.2f}" if low == high else f"{low:.2f}-{high:.2f}"


def _first(runs: Sequence[Record]) -> float:
    return float(statistics.median(run["seconds"]["prefill"][0] for run in runs if "seconds" in run))
