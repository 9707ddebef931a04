"""Formulas of docstrings, written there as plain text, are typeset on the pages of the library, as a Sphinx extension.

``T_m^-1 q_m`` or ``s^(-m/2) R(m theta)`` reads well in a terminal; on a page it becomes a formula. A formula is a run
of names with indices or powers, Greek letters, numbers, calls, brackets and signs between them, with at least one
index, power, Greek letter or call in it; words of prose, shapes and code stay as they are.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from sphinx.application import Sphinx

LETTERS = ["theta", "mu", "gamma", "omega", "phi", "sigma", "lambda", "alpha", "beta", "pi"]
LETTERS += ["Theta", "Gamma", "Omega", "Delta", "Phi"]
GREEK = "|".join(LETTERS)
PLAIN = ("exp", "log", "cos", "sin", "det", "sqrt")
CALLS = {name: f"\\{name}" for name in PLAIN} | {
    name: rf"\operatorname{{{name}}}" for name in ("diag", "softmax", "lse")
}
SIGNS = {
    **{"<=": r"\le ", ">=": r"\ge ", "!=": r"\ne ", "->": r"\to "},
    **{".": r"\cdot ", "*": r"\odot ", "+-": r"\pm "},
}
TRANSPOSED = r"\top"
CLOSED = {"(": ")", "[": "]", "<": ">", "|": "|"}
DRAWN = {"<": r"\langle ", ">": r"\rangle"}

BRACED = r"\{[^{}]*\}|\((?:[^()]|\([^()]*\))*\)"
BELOW = rf"{BRACED}|(?:{GREEK}|[A-Za-z0-9]{{1,2}})(?![A-Za-z0-9_])"
ABOVE = rf"-?(?:{BRACED}|\d+|[A-Za-z](?![A-Za-z0-9_]))"
SCRIPT = rf"(?:_(?:{BELOW})|\^(?:{ABOVE}))"
START = r"(?<![\w.\\`'^*])(?<!\w-)"
TOKEN = re.compile(
    rf"(?P<indexed>{START}(?:{GREEK}|sum|log|[A-Za-z]'?|\d+(?=\^)){SCRIPT}+)"
    rf"|(?P<greek>{START}(?:{GREEK})(?![\w`-]))"
    rf"|(?P<call>{START}(?:{'|'.join(CALLS)})(?=[( ]))"
    rf"|(?P<letter>{START}[A-Za-z]'?(?![\w'`]))"
    rf"|(?P<number>{START}\d+(?:\.\d+)?(?![\w`]))"
    r"|(?P<dots>\.\.\.)|(?P<sign><=|>=|!=|->|\+-|[-=+/.,<>*])|(?P<bracket>[()\[\]]|\\?\|)|(?P<space> +)"
    rf"|(?P<power>(?<=[)|]){SCRIPT}+)|(?P<other>``.*?``|:[a-z:]+:`[^`]*`|[\w'`\\]+|.)"
)


@dataclass
class Run:
    """A formula under way: its TeX, the place after it, and whether an index, a power or a Greek letter is in it."""

    tex: str
    end: int
    rich: bool


class Line:
    """A line's tokens."""

    def __init__(self, text: str) -> None:
        """Cut the line up."""
        self.tokens = [(str(each.lastgroup), each[0]) for each in TOKEN.finditer(text)]

    def kind(self, i: int) -> str:
        """The kind of a token; none behind the last."""
        return self.tokens[i][0] if i < len(self.tokens) else ""

    def text(self, i: int) -> str:
        """A token."""
        return self.tokens[i][1].replace("\\|", "|") if i < len(self.tokens) else ""

    def operand(self, i: int, inside: bool) -> Run | None:
        """A name, a number, or brackets with a formula in them, with what is called or raised right behind it."""
        kind, text = self.kind(i), self.text(i)
        if kind in ("indexed", "greek", "letter", "number"):
            run = Run(tex_of(text), i + 1, kind in ("indexed", "greek"))
        elif kind == "dots" and inside:
            run = Run(r"\dots", i + 1, False)
        elif kind == "call":
            return self.call(i)
        elif text in ("-", "+-") and self.kind(i + 1) not in ("space", "sign"):
            after = self.operand(i + 1, inside)
            return after and Run(SIGNS.get(text, text) + after.tex, after.end, after.rich)
        else:
            return self.brackets(i)
        if kind != "number" and self.text(run.end) in ("(", "["):
            called = self.brackets(run.end)
            run = Run(run.tex + called.tex, called.end, run.rich or called.rich) if called else run
        return run

    def call(self, i: int) -> Run | None:
        """A named function of what stands behind it: in brackets, or a name with an index."""
        name, of = CALLS[self.text(i)], self.brackets(i + 1)
        if of and name == r"\sqrt":
            return Run(f"{name}{{{of.tex[1:-1]}}}", of.end, True)
        if not of and self.kind(i + 1) == "space" and self.kind(i + 2) in ("indexed", "greek"):
            of = self.operand(i + 2, inside=False)
            name += " "
        return of and Run(name + of.tex, of.end, True)

    def brackets(self, i: int) -> Run | None:
        """A formula, or several with commas between them, in brackets."""
        opening = self.text(i)
        if opening not in CLOSED or (opening in "<|" and self.kind(i + 1) == "space"):
            return None
        parts, rich, at = [], False, i + 1
        while True:
            part = self.formula(at, inside=True)
            if part is None:
                return None
            parts, rich, at = [*parts, part.tex], rich or part.rich, part.end
            if self.text(at) != ",":
                break
            at += 2 if self.kind(at + 1) == "space" else 1
        if self.text(at) != CLOSED[opening]:
            return None
        left, right = (DRAWN.get(mark, mark) for mark in (opening, CLOSED[opening]))
        run = Run(f"{left}{', '.join(parts)}{right}", at + 1, rich)
        while self.kind(run.end) == "power":
            run = Run(run.tex + scripts(self.text(run.end)), run.end + 1, True)
        after = self.brackets(run.end) if self.text(run.end) == "(" else None
        return Run(run.tex + after.tex, after.end, run.rich or after.rich) if after else run

    def formula(self, i: int, inside: bool = False) -> Run | None:
        """The longest formula that begins here."""
        run = self.operand(i, inside)
        while run:
            gap = self.kind(run.end) == "space"
            at = run.end + gap
            sign = self.text(at) if self.kind(at) == "sign" and self.text(at) != "," else ""
            spaced = gap and self.kind(at + 1) == "space"
            if sign and (spaced or (not gap and sign in ("-", "+", "/", "->") and self.kind(at + 1) != "space")):
                after = self.operand(at + 1 + spaced, inside or self.kind(at + 1 + spaced) == "dots")
                between = SIGNS.get(sign, sign)
            elif gap and not sign and self.may_follow(at, inside, run):
                after, between = self.operand(at, inside), r"\," if self.kind(at) == "call" else " "
                if after and self.kind(at) == "bracket" and not after.rich and re.search(r",|\\dots", after.tex):
                    after = None  # a shape
            else:
                after, between = None, ""
            if after is None:
                break
            run = Run(run.tex + between + after.tex, after.end, run.rich or after.rich)
        return run

    def may_follow(self, i: int, inside: bool, run: Run) -> bool:
        """Whether what stands here, after a space, belongs to the formula: a letter of prose does not."""
        if self.kind(i) == "letter":
            return inside or (run.rich and self.text(i) not in "aA")
        return (
            self.kind(i) in ("indexed", "greek", "call")
            or (inside and self.kind(i) == "dots")
            or self.text(i) in ("(", "|")
        )


def tex_of(name: str) -> str:
    """The TeX of a name with its indices and powers."""
    found = re.match(r"([A-Za-z]+|[\d.]+)('?)(.*)", name)
    assert found is not None
    base, prime, rest = found.groups()
    tex = f"\\{base}" if base in (*LETTERS, "sum", "log") else base
    tex = f"{{{tex}^{{\\prime}}}}" if prime else tex
    return tex + scripts(rest) + (" " if tex.startswith("\\") and not rest else "")


def scripts(text: str) -> str:
    """The TeX of indices and powers."""
    made = ""
    for mark, minus, what in re.findall(rf"([_^])(-?)({BRACED}|\w+)", text):
        inner = what[1:-1] if what[0] in "({" else what
        line = Line(inner)
        whole = line.formula(0, inside=True)
        tex = whole.tex if whole and whole.end == len(line.tokens) else inner
        tex = f"-({tex})" if minus and what[0] == "(" else minus + tex
        made += f"{mark}{{{TRANSPOSED if (mark, inner) == ('^', 'T') else tex}}}"
    return made


def typeset(text: str) -> str:
    """A line of a docstring with its formulas as roles."""
    line, made, i = Line(text), "", 0
    while i < len(line.tokens):
        before = made[-1:]
        run = None if before.isalnum() or before in (")", "]") else line.formula(i)
        if run and run.rich:
            made, i = f"{made}\\ :math:`{run.tex.strip()}`\\ ", run.end
        else:
            made, i = made + line.tokens[i][1], i + 1
    return made


LEFT_ALONE = re.compile(r"\s*(>>>|\.\.|:r?type|:Source)")


def typeset_docstring(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Typeset the formulas of a docstring's prose; examples and blocks of code stay."""
    code_until: int | None = None  # the indentation at which a block of code ends
    example = False
    for i, line in enumerate(lines):
        depth = len(line) - len(line.lstrip())
        example = bool(line.strip()) and (example or line.lstrip().startswith(">>>"))
        if code_until is not None and line.strip() and depth <= code_until:
            code_until = None
        if code_until is None and not example and not LEFT_ALONE.match(line):
            field = re.match(r"\s*:[^:`]+: ?", line)
            start = field.end() if field else 0
            lines[i] = line[:start] + typeset(line[start:])
        if line.rstrip().endswith("::"):
            code_until = depth


def setup(app: Sphinx) -> dict[str, object]:
    """Register the typesetting, behind napoleon."""
    app.connect("autodoc-process-docstring", typeset_docstring, priority=900)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
