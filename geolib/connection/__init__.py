"""What joins the methods: transport from step to step, and its holonomy.

A discrete connection on a line or a grid gives every step between neighbours an invertible matrix; a step taken
backwards is the inverse. Along a path the matrices multiply up, the latest on the left. Round a loop the product is
the *holonomy*; a connection is *flat* when every loop gives the identity, so that the end point alone decides the
transport.

Two ways to make one::

    from_frames(T, axes=2)              # P_{n->m} = T_m T_n^-1: flat, whatever the frames
    Connection((east, north))           # steps given one by one: on a line flat, on a grid seldom

And one method whose steps are read from the data on a grid, so that the way matters: ``Compass``, with flat relatives.

Rooms: ``lattice`` (connections, products along paths, flatness), ``steps`` (connections given step by step), ``paths``
(transport between all pairs), ``compass`` (the curved method). All names are importable from here.
"""

from __future__ import annotations

from geolib.connection.compass import (
    TRANSPORTS,
    CombCompass,
    CommutingCompass,
    Compass,
    FrameCompass,
    OrderCompass,
    read_compass,
)
from geolib.connection.lattice import (
    Connection,
    Node,
    check_invertible,
    flatness_defect,
    from_frames,
    gauge_transform,
    holonomy,
    plaquettes,
    rectangle,
    straight_path,
    to_frames,
    transport_along,
)
from geolib.connection.paths import (
    carried_scores,
    cayley_rotation,
    line_frames,
)
from geolib.connection.steps import (
    conformal_steps,
    generator_steps,
    householder_steps,
    implied_connection,
    levi_civita,
    turning_steps,
)

# In the order in which they are told; the API page follows it.
__all__ = [  # noqa: RUF022
    "Node",
    "Connection",
    "check_invertible",
    "transport_along",
    "holonomy",
    "straight_path",
    "rectangle",
    "plaquettes",
    "flatness_defect",
    "from_frames",
    "to_frames",
    "gauge_transform",
    "turning_steps",
    "conformal_steps",
    "householder_steps",
    "implied_connection",
    "generator_steps",
    "levi_civita",
    "cayley_rotation",
    "line_frames",
    "carried_scores",
    "Compass",
    "CommutingCompass",
    "CombCompass",
    "FrameCompass",
    "OrderCompass",
    "TRANSPORTS",
    "read_compass",
]
