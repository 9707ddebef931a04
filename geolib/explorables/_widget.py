"""What the explorables share in Python: their base class, the kinds of their traits, and the making of one module."""

import base64
import math
import numbers
import os
import re
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import traitlets

from geolib._checks import require
from geolib.figures import roles_css

try:
    import anywidget
except ImportError as error:  # pragma: no cover - the message is tested in a process of its own
    raise ImportError("geolib.explorables needs anywidget: pip install anywidget") from error

_HERE = Path(__file__).parent
_GALLERY = "https://geometry-of-attention.github.io/geometry-of-attention/book/gallery.html"
_SHARED = (
    "common.js",
    "moves.js",
    "goal.js",
    "stage.js",
    "draw.js",
    "write.js",
    "guess.js",
    "algebra.js",
    "solid.js",
    "series.js",
    "network.js",
    "sheet.js",
)
_IMPORT = re.compile(r'^import \{[^}]*\} from "\./([a-z]+\.js)";\n', re.MULTILINE)
# Comments that have lines of their own; what stands behind code stays.
_COMMENT = re.compile(r"^[ \t]*(?://.*\n|/\*(?:[^*]|\*(?!/))*\*/\n)", re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|const|class) )", re.MULTILINE)


def _lean(text: str) -> str:
    """The text without its comments, indentation and empty lines: pages hold it once for each explorable."""
    return re.sub(r"\n{2,}", "\n", re.sub(r"^[ \t]+", "", _COMMENT.sub("", text), flags=re.MULTILINE))


class Explorable(anywidget.AnyWidget):
    """A figure whose parameters are traits: setting one moves the picture, moving the picture sets it.

    Parameters
    ----------
    share : mapping
        From a trait's name to a name that all explorables of the page know: ``share={"base": "b"}`` here and
        ``share={"base": "b"}`` there tie the two bases together. Start both at the same value.
    """

    _css = roles_css() + _lean((_HERE / "style.css").read_text(encoding="utf-8"))

    share = traitlets.Dict(key_trait=traitlets.Unicode(), value_trait=traitlets.Unicode()).tag(sync=True)

    _rules = traitlets.Dict().tag(sync=True)  # what each parameter may be: text that moves the figure must know

    @traitlets.default("_rules")
    def _what_is_allowed(self) -> dict[str, dict[str, Any]]:
        kinds = {name: self.traits()[name] for name in self.parameters()}
        return {name: kind.rule() for name, kind in kinds.items() if hasattr(kind, "rule")}

    @traitlets.validate("share")
    def _share(self, proposal: traitlets.Bunch) -> dict[str, str]:
        unknown = [name for name in proposal.value if name not in self.parameters()]
        require(not unknown, "share", unknown, f"the parameters are {', '.join(self.parameters())}")
        return proposal.value

    _still = traitlets.Unicode().tag(sync=True)  # marks what stands in for the figure: the living one hides it

    @traitlets.default("_still")
    def _mark(self) -> str:
        return f"geo-still-{uuid.uuid4().hex}"

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """What a notebook's cell shows.

        A saved notebook has no kernel that brings the figure to life, and nbconvert would show an empty cell. So the
        figure's still comes first, as an output of its own, and is hidden once the figure lives.
        """
        if not os.environ.get("GEOLIB_WITHOUT_STILLS"):  # the book's pages have their own
            _show_html(f'<div class="{self._still}">{self._in_its_place()}</div>')
        bundle: tuple[dict[str, Any], dict[str, Any]] | None = super()._repr_mimebundle_(**kwargs)
        return bundle

    @classmethod
    def _in_its_place(cls) -> str:
        """The still of the gallery's figure of this kind, with a link to it."""
        name = cls.__module__.rpartition(".")[2]
        drawn = base64.b64encode((_HERE / "stills" / f"{name}.webp").read_bytes()).decode()
        return (
            f'<img src="data:image/webp;base64,{drawn}" alt="A still of the figure {cls.__name__}" width="480"><br>'
            "A still. Here no kernel moves the figure. "
            f'<a href="{_GALLERY}#explorable-{name}">It moves in the book</a>.'
        )

    @classmethod
    def parameters(cls) -> list[str]:
        """The names of the traits that a reader may set."""
        own = {name for base in cls.__mro__ if issubclass(base, Explorable) for name in vars(base)}
        found = cls.class_trait_names(sync=True)
        return sorted(name for name in found if name in own and not name.startswith("_") and name != "share")


class Real(traitlets.Float):
    """A finite number from ``low`` to ``high``, both included; live both ways."""

    def __init__(self, default: float, low: float = -math.inf, high: float = math.inf):
        super().__init__(default)
        self.low, self.high = low, high
        self.tag(sync=True)

    def rule(self) -> dict[str, Any]:
        """What the page must know to refuse a value."""
        return _bounds(self.low, self.high)

    def validate(self, obj: Any, value: Any) -> float:
        """The value as a float; ValueError when it is none or out of range."""
        return _number(self.name or "", value, self.low, self.high)


class Whole(traitlets.Int):
    """A whole number from ``low`` to ``high``, both included, or each ``step``-th of them; live both ways."""

    def __init__(self, default: int, low: int, high: int, step: int = 1):
        super().__init__(default)
        self.low, self.high, self.step = low, high, step
        self.tag(sync=True)

    def rule(self) -> dict[str, Any]:
        """What the page must know to refuse a value."""
        return {"low": self.low, "high": self.high, "step": self.step}

    def validate(self, obj: Any, value: Any) -> int:
        """The value as an int; ValueError when it is none or out of range."""
        whole = isinstance(value, numbers.Real) and not isinstance(value, bool) and float(value).is_integer()
        require(
            whole and self.low <= value <= self.high and (value - self.low) % self.step == 0,
            self.name or "",
            value,
            f"it must be a whole number from {self.low} to {self.high}"
            + (f", in steps of {self.step}" if self.step > 1 else ""),
        )
        return int(value)


class Choice(traitlets.Unicode):
    """One of a few words; live both ways."""

    def __init__(self, default: str, options: Sequence[str]):
        super().__init__(default)
        self.options = tuple(options)
        self.tag(sync=True)

    def rule(self) -> dict[str, Any]:
        """What the page must know to refuse a value."""
        return {"words": list(self.options)}

    def validate(self, obj: Any, value: Any) -> str:
        """The word; ValueError for another."""
        require(value in self.options, self.name or "", repr(value), f"it is one of {', '.join(self.options)}")
        return value


class Text(traitlets.Unicode):
    """A text of at most ``most`` letters; live both ways."""

    def __init__(self, default: str, most: int):
        super().__init__(default)
        self.most = most
        self.tag(sync=True)

    def rule(self) -> dict[str, Any]:
        """What the page must know to refuse a value."""
        return {"letters": self.most}

    def validate(self, obj: Any, value: Any) -> str:
        """The text; ValueError when it is none or too long."""
        sound = isinstance(value, str) and len(value) <= self.most
        require(sound, self.name or "", repr(value), f"it must be a text of at most {self.most} letters")
        return value


class Reals(traitlets.List):
    """A list of finite numbers, ``least`` to ``most`` of them, as many as the default has unless given; live both ways.

    Assign a new list: changing an entry in place tells nobody.
    """

    def __init__(
        self,
        default: Sequence[float],
        low: float = -math.inf,
        high: float = math.inf,
        least: int | None = None,
        most: int | None = None,
    ):
        super().__init__(default_value=list(default))
        self.low, self.high = low, high
        self.least = len(default) if least is None else least
        self.most = len(default) if most is None else most
        self.tag(sync=True)

    def rule(self) -> dict[str, Any]:
        """What the page must know to refuse a value."""
        return {"least": self.least, "most": self.most, **_bounds(self.low, self.high)}

    def validate(self, obj: Any, value: Any) -> list[float]:
        """The numbers as a list of floats; ValueError when they are too few, too many or out of range."""
        try:
            came = list(value)
        except TypeError:
            came = [value]
        count = f"{self.least}" if self.least == self.most else f"{self.least} to {self.most}"
        require(self.least <= len(came) <= self.most, self.name or "", f"{len(came)} numbers", f"there must be {count}")
        return [_number(self.name or "", each, self.low, self.high) for each in came]


def _bounds(low: float, high: float) -> dict[str, float]:
    """The bounds that are finite: JSON has no infinity."""
    return {name: bound for name, bound in (("low", low), ("high", high)) if math.isfinite(bound)}


def _number(name: str, value: Any, low: float, high: float) -> float:
    """A finite float in a range; ValueError otherwise."""
    sound = isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value)
    bounds = f", {low:g} or more" if high == math.inf else f" from {low:g} to {high:g}"
    require(
        sound and low <= value <= high, name, value, f"it must be a finite number{'' if low == -math.inf else bounds}"
    )
    return float(value)


def _show_html(text: str) -> None:
    """Put HTML among a cell's outputs; a terminal, or Python by itself, gets none."""
    try:
        from IPython import display, get_ipython
    except ImportError:  # a front end without IPython
        return
    if hasattr(get_ipython(), "kernel"):
        display.display(display.HTML(text))


def assemble(name: str) -> str:
    """One self-contained module: the shared files that an explorable imports, followed by its own file.

    A module that a page makes from its text has no siblings to import. So the imports are taken out, and the shared
    files come first with the word ``export`` taken from the start of their lines. Names share one scope then; a name
    declared twice is a syntax error, which the tests would meet.

    Parameters
    ----------
    name : str
        A file of this folder, such as ``"clock.js"``.

    Returns
    -------
    str
        A module that exports what the explorable's file exports, without comments and indentation.

    Raises
    ------
    ValueError
        When the file imports anything but the shared files, or ``./stage.js`` not at all.
    """
    text = (_HERE / name).read_text(encoding="utf-8")
    wanted, own = _IMPORT.findall(text), _IMPORT.sub("", text)
    others = re.findall(r"^import\b.*", own, re.MULTILINE) + [w for w in wanted if w not in _SHARED]
    came = f"imports of {', '.join(wanted) or 'nothing'}, others {others}"
    require("stage.js" in wanted and not others, name, came, "it must import ./stage.js and only shared files")
    wanted += ["common.js", "moves.js", "goal.js"]  # what stage.js imports
    shared = [(_HERE / each).read_text(encoding="utf-8") for each in _SHARED if each in wanted]
    return _lean("\n".join([*(_EXPORT.sub("", _IMPORT.sub("", each)) for each in shared), own]))
