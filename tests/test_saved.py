"""What a method prints of itself, and what it saves: the keys of saved models stay what they were.

``methods.py`` holds the keys of the registered methods, ``OTHERS`` those of other modules. None of them may be renamed
or dropped: a saved model would not load.
"""

import methods
import pytest
import torch

from geolib.attention import MultiHeadAttention
from geolib.encodings import METHODS, HalfSplit, LengthRoPE, RoPE, build
from geolib.recurrence import SympowAttention
from geolib.rotations import axial_frequencies, language_frequencies, yarn_frequencies, yarn_length

SETTING, FOCUSED = methods.SAVED, methods.FOCUSED_KEYS
LAYER = {"qkv.weight": (48, 16), "out.weight": (16, 16), "out.bias": (16,)}


def built(name, **options):
    """How a registered method is made, with or without wrappers."""
    return lambda: build(name, **SETTING, **options)


# What else is saved: how it is made, and its keys.
OTHERS = {
    "riemannformer+lf": (built("riemannformer+lf"), {**FOCUSED, "encoding.raw_scale": (2, 2)}),
    "learned angles": (built("riemannformer", learn_angles=True), {"raw_scale": (2, 2), "frequencies": (2, 12, 2)}),
    "rope+gauss": (built("rope+gauss"), FOCUSED),
    "rope+sympow": (built("rope+sympow"), {}),
    "rope+alibi": (built("rope+alibi"), {}),
    "liere, blocks of 8": (built("liere", block=8), {"generators": (2, 2, 3, 2, 28)}),
    "lf of each layer": (
        built("lf", per_layer=True),
        {f"layers.{i}.{key}": shape for i in range(2) for key, shape in FOCUSED.items()},
    ),
    "half-split learned scales": (lambda: HalfSplit(build("riemannformer", **SETTING)), {"encoding.raw_scale": (2, 2)}),
    "MultiHeadAttention": (lambda: MultiHeadAttention(16, 2), LAYER),
    "SympowAttention": (lambda: SympowAttention(16, 2), {**LAYER, "W_gamma.weight": (2, 16), "W_beta.weight": (2, 16)}),
}
MODULES = {name: (built(name), methods.METHODS[name].keys) for name in METHODS if name in methods.METHODS} | OTHERS


@pytest.mark.parametrize("name", MODULES)
def test_saved_models_load(name):
    make, saved = MODULES[name]
    module = make()
    state = {key: torch.rand(tuple(shape)) for key, shape in saved.items()}
    module.load_state_dict(state)  # strict: no key is missing, none is left over
    assert all(torch.equal(module.state_dict()[key], x) for key, x in state.items())


def test_frequencies_come_from_the_constructor_and_are_not_saved():
    """A longer context is another constructor around the same saved model, which then does not say what it was."""
    rope = HalfSplit(RoPE(language_frequencies(8)))
    longer = HalfSplit(RoPE(yarn_frequencies(8, 4.0, 128), length=yarn_length(4.0)))
    with pytest.raises(RuntimeError, match=r"encoding.frequencies: got .* in the state; this one has"):
        longer.load_state_dict(rope.state_dict())
    longer.load_state_dict(dict(rope.state_dict()))
    one, two = (LengthRoPE(language_frequencies(8), 64, x) for x in (None, language_frequencies(8) / 4))
    for mine, other in ((one, two), (two, one)):
        with pytest.raises(RuntimeError, match=r"longer: got .* in the state; this one has"):
            mine.load_state_dict(other.state_dict())


PRINTED = {
    "RoPE(pairs=32, axes=1, length=1.25)": RoPE(yarn_frequencies(64, 4.0, 128), length=1.25),
    "RoPE(pairs=4, axes=2, heads=3)": RoPE(axial_frequencies(8, 2).repeat(3, 1, 1)),
    "Sinusoidal(width=48, pairs=24, axes=2)": build("sinusoidal", **SETTING),
    "RiemannFormer(pairs=12, axes=2, scales=(2, 2))": build("riemannformer", **SETTING),
    "LieRE(width=8, blocks=3, axes=2, layers=2, own=(2, 2))": build("liere", **SETTING, block=8),
}


def test_a_method_prints_what_it_is():
    assert [*map(repr, PRINTED.values())] == [*PRINTED]
