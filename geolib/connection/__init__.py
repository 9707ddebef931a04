"""What joins the methods: transport from step to step, and its holonomy.

A discrete connection on a line or a grid gives every step between neighbours an invertible matrix; a step taken
backwards is the inverse. Along a path the matrices multiply up, the latest on the left. Round a loop the product is
the *holonomy*; a connection is *flat* when every loop gives the identity, so that the end point alone decides the
transport.

Two ways to make one::

    from_frames(T, axes=2)              # P_{n->m} = T_m T_n^-1: flat, whatever the frames
    Connection((east, north))           # steps given one by one: on a line flat, on a grid seldom

And one method whose steps are read from the data on a grid, so that the way matters: ``Compass``, with flat relatives.

Rooms: ``lattice`` (connections, products along paths, flatness), ``steps`` (connections given step by step) and
``compass`` (the curved method). All names are importable from here.
"""

from geolib.connection import compass, lattice, steps
from geolib.connection.compass import *  # noqa: F403
from geolib.connection.lattice import *  # noqa: F403
from geolib.connection.steps import *  # noqa: F403

__all__ = [name for room in (lattice, steps, compass) for name in room.__all__]
