"""Explorables as modules that any page can import, ``python -m geolib.explorables.embed FOLDER``.

A module, such as ``clock.mjs``, needs no other file, no kernel and no other host; the live model asks for its
weights beside it. It exports ``render`` as anywidget does: MyST's ``{anywidget}`` directive, marimo and Jupyter take
its address, and a plain page calls ``render({ el, state })``.
"""

import json
import sys
from pathlib import Path

from geolib import explorables

_HERE = Path(__file__).parent


def module_of(name: str) -> tuple[str, dict[str, str]]:
    """Make the module of an explorable, and the files that it asks for beside it.

    Parameters
    ----------
    name : str
        A class of ``geolib.explorables``, such as ``"RopeClock"``.

    Returns
    -------
    str, dict
        The module's text, and from a file's name to its text.

    >>> text, files = module_of("RopeClock")
    >>> text.count("export default"), files
    (1, {})
    """
    widget = getattr(explorables, name)()
    module, later = explorables._MODULES[name], [key for key in widget.keys if key.startswith("_later")]
    start = widget.get_state([*widget.parameters(), "share", "_rules", "_anywidget_id"])
    beside = {key: f"{module}{key.removeprefix('_later')}.json" for key in later if widget.get_state([key])[key]}
    asked = "".join(
        f'START["{key}"] = () => fetch(new URL("./{file}", import.meta.url)).then((reply) => reply.json());\n'
        for key, file in beside.items()
    )
    files = {file: json.dumps(widget.get_state([key])[key]) for key, file in beside.items()}
    code = str(widget._esm).replace("export default { render };", "")
    style = json.dumps(widget._css)
    tables = f"const START = {json.dumps(start)}, RULES = START._rules, STYLE = {style};\n"
    return code + tables + asked + (_HERE / "embed.js").read_text("utf-8"), files


def write(folder: Path) -> None:
    """Write the modules of all explorables, and what they ask for, into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, module in explorables._MODULES.items():
        text, files = module_of(name)
        for file, content in {f"{module}.mjs": text, **files}.items():
            (folder / file).write_text(content, "utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
