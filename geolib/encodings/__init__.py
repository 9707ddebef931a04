"""The methods, as modules that ``geolib.attention.Encoding`` describes, and the registry that names them.

In one's own transformer::

    rope = RoPE.text(64)                           # once, in __init__; 64 features a head
    placed = rope.place(positions)                 # once in forward
    y = placed.attention(q, k, v, x)               # in each layer, all that the encoding does there

By name, as models here do::

    encoding = build("rope-axial", width=192, heads=3, grid=(8, 8))

A method is one class, in a file of this package with what it leaves behind when it is placed. A new one is a class
that overrides ``place``, one line of ``METHODS`` and one entry of ``tests/methods.py``; every test that runs over the
registry then covers it (the page "Add a method, an experiment, a chapter").
"""

from geolib.encodings import bias, composite, embedded, liere, registry, riemannformer, rotary, sympow
from geolib.encodings.bias import *  # noqa: F403
from geolib.encodings.composite import *  # noqa: F403
from geolib.encodings.embedded import *  # noqa: F403
from geolib.encodings.liere import *  # noqa: F403
from geolib.encodings.registry import *  # noqa: F403
from geolib.encodings.riemannformer import *  # noqa: F403
from geolib.encodings.rotary import *  # noqa: F403
from geolib.encodings.sympow import *  # noqa: F403

_MODULES = (registry, rotary, riemannformer, liere, bias, sympow, embedded, composite)
__all__ = [name for module in _MODULES for name in module.__all__]
