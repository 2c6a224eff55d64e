"""A metric at a glance: a line per method and setting, a dot at its mean, a bar for ± sd."""

import html
from typing import NamedTuple

import numpy as np

from follmer.paper.report import names
from follmer.paper.report.names import PUBLISHED
from follmer.paper.report.rows import Group, Row, shown
from follmer.plots import METHODS

# Positive numbers that differ by more than this factor are shown on a logarithmic scale.
_WIDE = 20.0


class _Scale(NamedTuple):
    low: float
    high: float
    logarithmic: bool

    @classmethod
    def of(cls, means: np.ndarray, sds: np.ndarray) -> "_Scale":
        logarithmic = bool(means.min() > 0 and means.max() / means.min() > _WIDE)
        values = np.log(means) if logarithmic else np.concatenate([means - sds, means + sds])
        low, high = values.min(), values.max()
        margin = 0.06 * (high - low) or 1.0
        return cls(low - margin, high + margin, logarithmic)

    def percent(self, value: float) -> float:
        """From left to right; what lies beyond the scale is at its end."""
        if self.logarithmic:
            value = np.log(value) if value > 0 else -np.inf
        return float(np.clip(100 * (value - self.low) / (self.high - self.low), 0, 100))


def who(row: Row) -> str:
    """A row's method and setting."""
    return f"{html.escape(names.method(row.method))} <small>{html.escape(row.source)}</small>"


def strip(group: Group, metric: str) -> str:
    """HTML of one metric over all rows of the last case; empty where fewer than two have it."""
    case = group.rows[-1].case
    rows = [
        row
        for row in group.rows
        if row.case == case and metric in row.metrics and np.isfinite(row.metrics[metric].mean)
    ]
    if len(rows) < 2:
        return ""
    found = [row.metrics[metric] for row in rows]
    sds = np.array([one.sd if one.sd and np.isfinite(one.sd) else 0.0 for one in found])
    scale = _Scale.of(np.array([one.mean for one in found]), sds)
    lines = []
    for row, estimate, sd in zip(rows, found, sds, strict=True):
        place = scale.percent(estimate.mean)
        left, right = (scale.percent(estimate.mean + sign * sd) for sign in (-1, 1))
        colour = METHODS[row.method].colour if row.method in METHODS else "currentColor"
        kind = "dot hollow" if row.source == PUBLISHED else "dot"
        lines.append(
            f"<span>{who(row)}</span>"
            f'<span class="track" style="--colour:{colour}">'
            f'<i class="bar" style="left:{left:.2f}%;width:{right - left:.2f}%"></i>'
            f'<i class="{kind}" style="left:{place:.2f}%"></i></span>'
            f'<span class="value">{html.escape(shown(estimate))}</span>'
        )
    about = names.metric(metric)
    remarks = [
        html.escape(case),
        {"↑": "higher is better", "↓": "lower is better"}.get(about.better, ""),
        "logarithmic scale" if scale.logarithmic else "",
    ]
    told = ", ".join(remark for remark in remarks if remark)
    return (
        f'<div class="strip"><h3>{html.escape(about.spoken)} <small>{told}</small></h3>'
        f'<div class="lines">{"".join(lines)}</div></div>'
    )
