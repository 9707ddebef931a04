"""Where the time goes: a recorded training step cut into its parts, and what a faster part would give."""

from typing import Any

import traitlets

from geolib._checks import require
from geolib.explorables._widget import Explorable, Real, assemble
from geolib.lab.benches import saved

_SIZES = ("batch", "width", "tokens", "precision")


class StepTime(Explorable):
    """A bar of a training step from a recorded measurement, in its parts, and Amdahl's law for one of them.

    The sizes are those that the record has, and no others.

    The numbers are those of the record ``bench/parts.json``; the commit that it names has the code that measured it.

    Parameters
    ----------
    batch : int
        Pictures in a batch.
    width : int
        Features of a token.
    tokens : int
        Tokens of a picture.
    precision : str
        float32 or bf16.
    part : str
        The part that becomes faster; empty while the reader has not guessed which one is longest.
    gain : float
        How many times as fast it becomes, 1 to 100.
    rows : list of dict
        Sizes, seconds and shares of each recorded step: leave it as it is.
    made : str
        Where the record was made: leave it as it is.

    Raises
    ------
    ValueError
        When a value is out of its range or was not recorded.
    """

    _esm = assemble("time.js")

    rows: Any = traitlets.TraitType().tag(sync=True)
    made: Any = traitlets.TraitType().tag(sync=True)
    batch: Any = traitlets.TraitType(8).tag(sync=True)
    width: Any = traitlets.TraitType(192).tag(sync=True)
    tokens: Any = traitlets.TraitType(64).tag(sync=True)
    precision: Any = traitlets.TraitType("float32").tag(sync=True)
    part: Any = traitlets.TraitType("pictures").tag(sync=True)
    gain = Real(1.0, low=1, high=100)

    @traitlets.default("rows")
    def _recorded(self) -> list[dict[str, Any]]:
        kept = (*_SIZES, "cpu_seconds", "shares")
        return [{key: row[key] for key in kept} for row in saved.read("parts")["rows"]]

    @traitlets.default("made")
    def _where(self) -> str:
        record = saved.read("parts")
        row = record["rows"][0]
        return (
            f"{record['device']}, PyTorch {record['versions']['torch']}, {record['measured'][:10]}: one step of a "
            f"vision transformer with {row['layers']} layers and RiemannFormer's encoding, processor time."
        )

    @traitlets.default("_rules")
    def _what_is_allowed(self) -> dict[str, dict[str, Any]]:
        # The step keeps a link from passing through numbers between two that were recorded.
        listed = {name: {"words": self._values_of(name), "step": 2} for name in (*_SIZES, "part")}
        return listed | {"gain": self.traits()["gain"].rule()}

    def _values_of(self, name: str) -> list[Any]:
        """What a trait may be: each size as it was recorded, each part by its name."""
        return ["", *self.rows[0]["shares"]] if name == "part" else sorted({row[name] for row in self.rows})

    @traitlets.validate(*_SIZES, "part")
    def _one_that_was_recorded(self, proposal: traitlets.Bunch) -> Any:
        name, allowed = proposal.trait.name, self._values_of(proposal.trait.name)
        words = ", ".join(str(each) for each in allowed if each)
        require(proposal.value in allowed, name, repr(proposal.value), f"it is one of {words}")
        return proposal.value

    @traitlets.validate("rows")
    def _rows(self, proposal: traitlets.Bunch) -> list[dict[str, Any]]:
        value = proposal.value
        asked = {*_SIZES, "cpu_seconds", "shares"}
        sound = isinstance(value, list) and bool(value) and all(asked <= {*row} for row in value)
        require(sound, "rows", type(value).__name__, "it must be a list of rows of the record parts")
        return value

    @traitlets.validate("made")
    def _made(self, proposal: traitlets.Bunch) -> str:
        require(isinstance(proposal.value, str), "made", proposal.value, "it must be a sentence")
        return proposal.value
