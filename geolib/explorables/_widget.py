"""What the explorables share in Python: anywidget, and the making of one JavaScript module out of two files."""

from __future__ import annotations

import re
from pathlib import Path

from geolib._checks import require

try:
    import anywidget
except ImportError as error:  # pragma: no cover - the message is tested in a process of its own
    raise ImportError("geolib.explorables needs anywidget: pip install anywidget") from error

Explorable = anywidget.AnyWidget

_HERE = Path(__file__).parent
_IMPORT = re.compile(r'^import \{[^}]*\} from "\./common\.js";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|const|class) )", re.MULTILINE)


def assemble(name: str) -> str:
    """One self-contained module: ``common.js`` followed by the explorable's own file.

    A module that a page makes from its text has no siblings to import. So the explorable's one import of
    ``./common.js`` is taken out, and common.js comes before it with the word ``export`` taken from the start of its
    lines. Names share one scope then; a name declared twice is a syntax error, which the tests would meet.

    Parameters
    ----------
    name : str
        A file of this folder, such as ``"clock.js"``.

    Returns
    -------
    str
        A module that exports what the explorable's file exports.

    Raises
    ------
    ValueError
        When the file does not import ``./common.js`` once, or imports anything else.
    """
    own, count = _IMPORT.subn("", (_HERE / name).read_text(encoding="utf-8"))
    others = re.findall(r"^import\b.*", own, re.MULTILINE)
    came = f"{count} imports of ./common.js, other imports {others}"
    require(count == 1 and not others, name, came, "it must hold one import, of ./common.js")
    common = _EXPORT.sub("", (_HERE / "common.js").read_text(encoding="utf-8"))
    return f"{common}\n{own}"
