"""A trained model in the page: a digit is drawn, dragged and asked, and what the model learned is turned."""

import base64
import json
from collections.abc import Callable
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import traitlets

from geolib._checks import require
from geolib.explorables._widget import Choice, Explorable, Real, Reals, Whole, assemble

WEIGHTS = Path(__file__).parent / "weights"
METHODS = (
    "none",
    "sinusoidal",
    "learned",
    "rope-axial",
    "rope-mixed",
    "liere-8",
    "alibi",
    "riemannformer",
    "riemannformer+lf",
)
OWN = "own"


@lru_cache(maxsize=1)
def held_out() -> dict[str, Any]:
    """The held-out digits of the page's models, as ``geolib.explorables.export.held_out`` writes them."""
    return json.loads((WEIGHTS / "digits.json").read_text("utf-8"))


@cache
def model_of(method: str) -> dict[str, Any]:
    """One of the page's models: what is said about it, and its numbers as base64."""
    about = json.loads((WEIGHTS / f"{method}.json").read_text("utf-8"))
    return {"about": about, "numbers": base64.b64encode((WEIGHTS / f"{method}.bin").read_bytes()).decode()}


class Later(traitlets.Dict):
    """What a page asks for when it is needed, and not before: the trait's name begins with "_later"."""

    def __init__(self, read: Callable[..., dict[str, Any]], *given: str):
        super().__init__()
        self.read, self.given = read, given
        self.tag(sync=True)

    def default(self, obj: Any = None) -> dict[str, Any]:
        """What a file holds; the same object each time, as nothing changes it."""
        return self.read(*self.given)


class LiveModel(Explorable):
    """A small vision transformer, one for each of nine methods, that reads a digit of 8 x 8 tokens as it is moved.

    The sheet of 8 x 8 cells lies on a field of 12 x 12 positions, of which the models have been trained at the first 8
    along both axes. What is outside the sheet is no token.

    Parameters
    ----------
    model : ViT or Run, or None
        A model of the reader's own, as ``geolib.lab.train`` returns it, on the digits with patches of one pixel; it
        becomes the method "own".
    method : str
        none, sinusoidal, learned, rope-axial, rope-mixed, liere-8, alibi, riemannformer, riemannformer+lf, or own.
    digit : int
        The held-out digit on the sheet, 0 to 199; -1 for what is drawn.
    ink : list of 64 floats
        The drawing, 0 to 16, row by row.
    row, column : int
        How far the sheet is moved down and to the right, 0 to 4.
    shuffled : int
        1 when the sheet's patches are shuffled.
    query : int
        The cell that is asked where it looks, 0 to 63 in reading order.
    layer, head : int
        Whose attention is shown, from 0 on; the page's models have two of each.
    view : str
        "weights", "scores" before the softmax, or "arrows": a pair of features carried from each cell to the query.
    pair : int
        The pair of features, 0 to 15, of the arrows and of ``alone``.
    turn : float
        What all angles are multiplied by, 0 to 3.
    alone : float
        What the angles of the one pair are multiplied by, 0 to 3.
    scale : float
        RiemannFormer's s, up to 1.2; 0 for the learned ones.
    focus : float
        What the widths of locality focusing are multiplied by, 0.1 to 4.
    rest : float
        How much of LieRE's second generator does not commute with the first, 0 to 2 times what was learned.
    slope : float
        What ALiBi's slopes are multiplied by, 0 to 4.

    Raises
    ------
    ValueError
        When a value is out of its range, or the page cannot hold the model.

    Source: RF-13, LR-SHIFT. The models are those of the experiment digits-live.
    """

    _esm = assemble("live.js")

    method = Choice("rope-axial", [*METHODS, OWN])
    digit = Whole(0, low=-1, high=199)
    ink = Reals([0.0] * 64, low=0, high=16)
    row = Whole(0, low=0, high=4)
    column = Whole(0, low=0, high=4)
    shuffled = Whole(0, low=0, high=1)
    query = Whole(27, low=0, high=63)
    layer = Whole(0, low=0, high=7)
    head = Whole(0, low=0, high=7)
    view = Choice("weights", ["weights", "scores", "arrows"])
    pair = Whole(0, low=0, high=15)
    turn = Real(1.0, low=0, high=3)
    alone = Real(1.0, low=0, high=3)
    scale = Real(0.0, low=0, high=1.2)
    focus = Real(1.0, low=0.1, high=4)
    rest = Real(1.0, low=0, high=2)
    slope = Real(1.0, low=0, high=4)

    _later_digits = Later(held_out)
    _later_own = Later(dict)
    _later_none = Later(model_of, "none")
    _later_sinusoidal = Later(model_of, "sinusoidal")
    _later_learned = Later(model_of, "learned")
    _later_rope_axial = Later(model_of, "rope-axial")
    _later_rope_mixed = Later(model_of, "rope-mixed")
    _later_liere_8 = Later(model_of, "liere-8")
    _later_alibi = Later(model_of, "alibi")
    _later_riemannformer = Later(model_of, "riemannformer")
    _later_riemannformer_lf = Later(model_of, "riemannformer+lf")

    def __init__(self, model: Any = None, **values: Any):
        if model is not None:
            values = {"method": OWN, "_later_own": _own(model)} | values
        require(values.get("method") != OWN or model is not None, "method", OWN, "it needs a model: LiveModel(model)")
        super().__init__(**values)


def _own(model: Any) -> dict[str, Any]:
    """The reader's own model as the page takes it."""
    from geolib.explorables.export import exported
    from geolib.lab.data.augmentation import channel_moments
    from geolib.lab.data.sets import load
    from geolib.lab.train import Run

    if isinstance(model, Run):
        net, moments = model.model, (model.task.mean, model.task.std)
    else:
        net, moments = model, channel_moments(load("digits").x_train)
    about, numbers = exported(net, moments)
    small = about["grid"] == [8, 8] and about["layers"] <= 8 and about["heads"] <= 8
    came = f"a grid {about['grid']}, {about['layers']} layers, {about['heads']} heads"
    require(small, "model", came, "8 x 8 patches, at most 8 layers and 8 heads")
    return {"about": about, "numbers": base64.b64encode(numbers).decode()}
