"""What a method prints of itself, and what it saves: the keys of saved models stay what they were.

``saved_keys.json`` holds the keys and shapes of today. A key in it may not be renamed or dropped: a saved model would
not load. A method that is added adds its line: python tests/test_saved.py prints the file.
"""

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from geolib.attention import MultiHeadAttention
from geolib.encodings import METHODS, Composed, HalfSplit, PerLayer, RoPE, build
from geolib.recurrence import SympowAttention
from geolib.rotations import axial_frequencies, language_frequencies, yarn_frequencies, yarn_length

FILE = Path(__file__).with_name("saved_keys.json")
SETTING = {"width": 48, "heads": 2, "grid": (3, 4), "layers": 2}
CASES = [*METHODS, "riemannformer+lf", "rope+gauss", "rope+sympow", "rope+alibi"]
MODULES = {
    **{name: lambda name=name: build(name, **SETTING) for name in CASES},
    "liere, blocks of 8": lambda: build("liere", **SETTING, block=8),
    "lf of each layer": lambda: build("lf", **SETTING, per_layer=True),
    "half-split learned scales": lambda: HalfSplit(build("riemannformer", **SETTING)),
    "MultiHeadAttention": lambda: MultiHeadAttention(16, 2),
    "SympowAttention": lambda: SympowAttention(16, 2),
}


def keys_of(module):
    return {key: list(x.shape) for key, x in module.state_dict().items()}


@pytest.mark.parametrize("name", MODULES)
def test_saved_models_load(name):
    saved = json.loads(FILE.read_text("utf-8"))[name]
    module = MODULES[name]()
    state = {key: torch.rand(shape) for key, shape in saved.items()}
    module.load_state_dict(state)  # strict: no key is missing, none is left over
    assert all(torch.equal(module.state_dict()[key], x) for key, x in state.items())


def test_no_saved_method_is_gone():
    assert set(json.loads(FILE.read_text("utf-8"))) == set(MODULES)


def test_a_renamed_key_is_refused_by_name():
    module = build("lf", **SETTING)
    state = module.state_dict()
    state["width"] = state.pop("log_sigma")
    with pytest.raises(RuntimeError, match=r'(?s)Missing key.*"log_sigma".*Unexpected key.*"width"'):
        module.load_state_dict(state)
    other = build("lf", **(SETTING | {"heads": 4}))
    with pytest.raises(RuntimeError, match=r"size mismatch for log_sigma"):
        other.load_state_dict(module.state_dict())


def test_frequencies_come_from_the_constructor_and_are_not_saved():
    """A longer context is another constructor around the same saved model."""
    rope = HalfSplit(RoPE(language_frequencies(8)))
    longer = HalfSplit(RoPE(yarn_frequencies(8, 4.0, 128), length=yarn_length(4.0)))
    longer.load_state_dict(rope.state_dict())


@pytest.mark.parametrize(
    ("module", "shown"),
    [
        (RoPE(language_frequencies(64)), "RoPE(pairs=32, axes=1)"),
        (RoPE(yarn_frequencies(64, 4.0, 128), length=1.25), "RoPE(pairs=32, axes=1, length=1.25)"),
        (RoPE(axial_frequencies(8, 2).repeat(3, 1, 1)), "RoPE(pairs=4, axes=2, heads=3)"),
        (build("alibi", **SETTING), "ALiBi(heads=2)"),
        (build("rmt", **SETTING), "ManhattanDecay(heads=2)"),
        (build("sinusoidal", **SETTING), "Sinusoidal(width=48, pairs=24, axes=2)"),
        (build("learned", **SETTING), "Learned(width=48, grid=(3, 4))"),
        (build("riemannformer", **SETTING), "RiemannFormer(pairs=12, axes=2, scales=(2, 2))"),
        (build("liere", **SETTING, block=8), "LieRE(width=8, blocks=3, axes=2, layers=2, own=(2, 2))"),
        (build("spherical", **SETTING), "SphericalRoPE(triples=8, axes=2)"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_a_method_prints_what_it_is(module, shown):
    assert repr(module) == shown


@pytest.mark.parametrize("name", MODULES)
def test_every_module_prints_something_of_its_own(name):
    module = MODULES[name]()
    inside = [m for m in module.modules() if type(m).__module__.startswith("geolib")]
    silent = {type(m).__name__ for m in inside if not m.extra_repr()}
    assert silent <= {"Encoding", Composed.__name__, PerLayer.__name__, "PerLayerFocusing", HalfSplit.__name__}
    assert isinstance(module, nn.Module)


if __name__ == "__main__":
    print(json.dumps({name: keys_of(make()) for name, make in MODULES.items()}, indent=1))
