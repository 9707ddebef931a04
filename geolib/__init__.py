"""The geometry of attention, as a library: rotations, transports, metrics and the encodings made of them.

``import geolib`` loads torch and NumPy only. The modules are imported by name::

    from geolib.encodings import RoPE
    from geolib.rotations import rotate_pairs

On PyPI it is ``geometry-of-attention``; the distribution that is named ``geolib`` there is another package.
"""

__version__ = "0.1.0"
__distribution__ = "geometry-of-attention"
