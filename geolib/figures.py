"""The house style of the book's figures: one message each, direct labels, colours that every eye can tell apart."""

from collections.abc import Mapping
from typing import Any

from geolib._checks import require

# Okabe and Ito's palette (2008), darkened where needed to reach a contrast of 3 to 1 on the paper colour; then the same
# on the dark page, whose ground is NIGHT.
_PALETTE = {
    "blue": ("#0072b2", "#5fb0ec"),
    "orange": ("#c25e00", "#f08c3c"),
    "green": ("#007f5f", "#3fc79a"),
    "purple": ("#a8508a", "#dc90c8"),
    "sky": ("#3a8fc2", "#8cd0f5"),
    "gold": ("#9a7400", "#d8b23c"),
    "navy": ("#101c66", "#e9e4ff"),
    "grey": ("#6b6b6b", "#a0a4ab"),
}
COLOURS, DARK_COLOURS = ({name: pair[i] for name, pair in _PALETTE.items()} for i in (0, 1))
INK, PAPER = "#22252b", "#fdfcfa"
SOFT, RULE, PALE = "#4d535c", "#8b9097", "#e7e4dc"  # what an axis says, its line, the grid behind the marks
DARK_INK, NIGHT = "#d9dce1", "#15181d"

# What a colour means, in every figure and explorable, by theme; the explorables' style is made of this.
ROLES = {
    "light": {"query": "#b34700", "key": "#0067a3", "value": "#7a1f5c", "score": "#00704f"},
    "dark": {"query": "#ffa14d", "key": "#62bdf2", "value": "#ffd0e8", "score": "#3fd0a0"},
}

QUERY, KEY, VALUE, SCORE = ROLES["light"].values()

# What an explorable's text, lines and grounds are drawn in, by theme; sheet is the ground where a page names none.
_GREY_ROLES = ("text", "soft", "line", "rule", "panel", "sheet")
GREYS = {
    "light": dict(zip(_GREY_ROLES, ("#1c2430", "#55606e", "#d5dae1", "#808b99", "#f6f7f9", "#ffffff"))),
    "dark": dict(zip(_GREY_ROLES, ("#e8ebef", "#a9b4c0", "#343c48", "#77828f", "#1c222a", "#14181e"))),
}

# A method's colour tells its family, its dashes the member: seven colours are too few for all methods and all eyes.
METHOD_STYLES = {
    "none": ("grey", ":"),
    "sinusoidal": ("sky", "--"),
    "learned": ("sky", ":"),
    "rope": ("blue", "-"),
    "rope-axial": ("blue", "--"),
    "visionllama": ("blue", "-."),
    "rope-mixed": ("blue", ":"),
    "riemannformer": ("orange", "-"),
    "riemannformer-general": ("orange", "--"),
    "riemannformer-diagonal": ("orange", "-."),
    "riemannformer-reflection": ("orange", ":"),
    "riemannformer-relative": ("purple", "-."),
    "liere": ("purple", "-"),
    "lf": ("green", "-"),
    "alibi": ("green", "--"),
    "sympow-gates": ("green", "-."),
    "compass": ("purple", "--"),
    "gauss": ("purple", ":"),
    "rmt": ("sky", "-"),
    "rope-pair": ("sky", "-."),
    "spherical": ("navy", "-"),
}


def method_style(name: str) -> dict[str, str]:
    """How matplotlib draws a method of the registry; what follows a plus sign adds dots to the line.

    A method that ``METHOD_STYLES`` does not name is a gold line; a name that the registry does not know, a ValueError.

    >>> method_style("rope"), method_style("rope+lf")["marker"]
    ({'color': '#0072b2', 'linestyle': '-', 'marker': ''}, 'o')
    """
    method, *wrappers = name.split("+")
    if method not in METHOD_STYLES:
        from geolib.encodings import check_name  # here: figures that name no method need no registry

        check_name(method)
    colour, dashes = METHOD_STYLES.get(method, ("gold", "-"))
    return {"color": COLOURS[colour], "linestyle": dashes, "marker": "o" if wrappers else ""}


def dark(colour: str) -> str:
    """The counterpart of a colour, '#rrggbb', on the dark page.

    Colours of the palette have named counterparts. Greys change places with their opposites; what is too dark to see
    is mixed with white until its contrast to the ground is 3.

    >>> dark(COLOURS["blue"]) == DARK_COLOURS["blue"], dark(INK) == DARK_INK
    (True, True)
    """
    named = {COLOURS[name]: DARK_COLOURS[name] for name in COLOURS} | {INK: DARK_INK, "#000000": DARK_INK}
    named |= {ROLES["light"][role]: ROLES["dark"][role] for role in ROLES["light"]}
    if colour in named:
        return named[colour]
    channels = _channels(colour)
    if max(channels) - min(channels) < 0.06:
        ground, ink = (sum(_channels(end)) / 3 for end in (NIGHT, DARK_INK))
        return _hex([ground + (ink - ground) * (1 - sum(channels) / 3)] * 3)
    while (_light(channels) + 0.05) / (_light(_channels(NIGHT)) + 0.05) < 3:
        channels = [channel + 0.05 * (1 - channel) for channel in channels]
    return _hex(channels)


def _channels(colour: str) -> list[float]:
    """Red, green and blue of '#rrggbb', from 0 to 1."""
    return [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]


def _hex(channels: list[float]) -> str:
    """The colour as '#rrggbb'."""
    return "#" + "".join(f"{round(255 * channel):02x}" for channel in channels)


def _light(channels: list[float]) -> float:
    """Relative luminance as WCAG 2 defines it."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def roles_css() -> str:
    """The roles and the greys as custom properties of the explorables, light and dark.

    >>> roles_css().splitlines()[0][:75]
    '.geo { --query: #b34700; --key: #0067a3; --value: #7a1f5c; --score: #00704f'
    """
    where = {"light": ".geo", "dark": '.geo[data-theme="dark"]'}
    colours = {theme: (ROLES[theme] | GREYS[theme]).items() for theme in where}
    rows = {theme: " ".join(f"--{name}: {colour};" for name, colour in colours[theme]) for theme in where}
    return "".join(f"{where[theme]} {{ {row} }}\n" for theme, row in rows.items())


def use_house_style() -> None:
    """Set matplotlib up for the book: paper background, thin axes, the palette's colours in order, vector output.

    The site makes of each figure a copy for its dark pages (``dark``); in a notebook it keeps its paper background.

    >>> use_house_style()
    >>> import matplotlib
    >>> matplotlib.rcParams["axes.prop_cycle"].by_key()["color"][0] == COLOURS["blue"]
    True
    """
    import matplotlib as mpl
    from cycler import cycler

    mpl.rc("axes", axisbelow=True, edgecolor=RULE, facecolor=PAPER, grid=True, labelcolor=SOFT, linewidth=0.8)
    mpl.rc("axes", prop_cycle=cycler(color=list(COLOURS.values())), titlelocation="left", titlesize="medium")
    mpl.rc("axes.grid", axis="y")
    mpl.rc("axes.spines", right=False, top=False)
    mpl.rc("figure", facecolor=PAPER, figsize=(6.4, 3.2))
    mpl.rc("figure.constrained_layout", use=True)
    mpl.rc("font", size=10.5)
    mpl.rc("grid", color=PALE, linewidth=0.7)
    mpl.rc("image", cmap="cividis")
    mpl.rc("legend", frameon=False)
    mpl.rc("lines", linewidth=2.0, solid_capstyle="round")
    mpl.rc("savefig", facecolor=PAPER)
    mpl.rc("svg", hashsalt="geolib")  # the same figure gives the same file
    mpl.rc("text", color=INK)
    mpl.rc("xtick", color=RULE, labelcolor=SOFT)
    mpl.rc("ytick", color=RULE, labelcolor=SOFT)
    mpl.rc("xtick.major", size=3.0)
    mpl.rc("ytick.major", size=3.0)
    try:
        from matplotlib_inline.backend_inline import set_matplotlib_formats
    except ImportError:  # outside a notebook there is nothing to set
        return
    set_matplotlib_formats("svg")


def label_lines(axes: Any, gap: float = 0.01) -> None:
    """Write each line's label at its right end, in its colour, instead of a legend; labels that collide move apart.

    Labels that begin with an underscore are left out. ``gap`` is the space before a label, in fractions of the axes'
    width.

    >>> from matplotlib.figure import Figure
    >>> axes = Figure().subplots()
    >>> _ = axes.plot([0, 1], [0, 1], label="up")
    >>> label_lines(axes)
    >>> [text.get_text() for text in axes.texts]
    ['up']
    """
    axes.get_xlim(), axes.get_ylim()  # autoscaling is lazy: asking makes transData current
    lines = [line for line in axes.get_lines() if not str(line.get_label()).startswith("_") and len(line.get_xdata())]
    to_axes = axes.transAxes.inverted()
    ends = {line: to_axes.transform(axes.transData.transform(line.get_xydata()[-1])) for line in lines}
    floor = float("-inf")
    line_height = 1.4 * axes.xaxis.label.get_size() / 72 * axes.figure.dpi / axes.get_window_extent().height
    for line in sorted(lines, key=lambda line: ends[line][1]):
        floor = max(floor + line_height, ends[line][1])
        style = {"color": line.get_color(), "transform": axes.transAxes, "va": "center", "clip_on": False}
        axes.text(ends[line][0] + gap, floor, str(line.get_label()), **style)


def forest(axes: Any, differences: Mapping[str, Any], blurs: Mapping[str, float] | None = None) -> None:
    """Draw paired differences, one a row from top to bottom: dots for seeds, a bar for the interval, a black mean.

    A bar that leaves out zero is blue: that order is seen. One that holds zero is grey.

    ``differences`` maps a row's name to a ``geolib.lab.experiments.PairedDifference`` in percentage points; the names
    become the vertical axis. ``blurs`` maps names to half widths, drawn thin about the mean: another kind of chance,
    such as that of the test images. ValueError when there is no row, or one has fewer than three seeds.

    >>> from matplotlib.figure import Figure
    >>> from geolib.lab.experiments import PairedDifference
    >>> axes = Figure().subplots()
    >>> forest(axes, {"a - b": PairedDifference((0, 1, 2), (1.0, 2.0, 1.5))})
    >>> axes.get_xlabel()
    'difference, percentage points'
    """
    require(len(differences) > 0, "differences", "no row", "there must be one")
    axes.axvline(0, color=COLOURS["grey"], lw=0.8)
    for row, (name, found) in enumerate(differences.items()):
        require(found.interval is not None, "differences", f"{found.count} seeds of {name}", "there must be three")
        colour = COLOURS["grey" if found.within_noise else "blue"]
        if blurs:
            axes.hlines(row, found.mean - blurs[name], found.mean + blurs[name], color=colour, lw=0.8)
        axes.hlines(row, *found.interval, color=colour, lw=4, alpha=0.75)
        axes.plot(found.differences, [row] * found.count, "o", color=PAPER, mec=colour, ms=4, mew=0.9)
        axes.plot(found.mean, row, "|", color=INK, ms=11, mew=1.8)
    axes.set_yticks(range(len(differences)), list(differences))
    axes.set(xlabel="difference, percentage points", ylim=(len(differences) - 0.4, -0.6))
