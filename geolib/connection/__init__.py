"""What joins the methods: transport from step to step, its holonomy, and the table of methods in closed form.

A discrete connection on a line or a grid gives every step between neighbours an invertible matrix; a step taken
backwards is the inverse. Along a path the matrices multiply up, the latest on the left. Round a loop the product is
the *holonomy*; a connection is *flat* when every loop gives the identity, so that the end point alone decides the
transport.

Two ways to make one::

    from_frames(T, axes=2)              # P_{n->m} = T_m T_n^-1: flat, whatever the frames
    Connection((east, north))           # steps given one by one: on a line flat, on a grid seldom

Then the table "what joins them": one ``Row`` for each method, with the closed form of its transport and scale as plain
matrices; ``rows_of`` fills a row with the parameters of a method's module::

    encoding = build("rope-axial", width=48, heads=2, grid=(8, 8))
    (row,) = rows_of(encoding, head_dim=24, head=1)
    row.bilinear_form(m, n)                              # the matrix of the score q_m^T B k_n

And one method whose steps are read from the data on a grid, so that the way matters: ``Compass``, with flat relatives.

Rooms: ``lattice`` (connections, products along paths, flatness), ``steps`` (connections given step by step), ``paths``
(transport between all pairs), ``rows`` (the table), ``modules`` (the rows of a method's module), ``compass`` (the
curved method). All names are importable from here.
"""

from __future__ import annotations

from geolib.connection.compass import (
    TRANSPORTS,
    CombCompass,
    CommutingCompass,
    Compass,
    FrameCompass,
    OrderCompass,
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
from geolib.connection.modules import (
    ROWS,
    Reading,
    read_compass,
    read_conformal,
    rows_of,
)
from geolib.connection.paths import (
    carried_scores,
    cayley_rotation,
    line_frames,
)
from geolib.connection.rows import (
    AFTER,
    INSIDE,
    SCORE,
    Row,
    alibi_row,
    conformal_row,
    gated_row,
    liere_row,
    lifted_conformal_row,
    locality_row,
    none_row,
    riemannformer_diagonal_row,
    riemannformer_general_row,
    riemannformer_relative_row,
    riemannformer_row,
    rope_row,
    spherical_row,
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
    "SCORE",
    "INSIDE",
    "AFTER",
    "Row",
    "none_row",
    "rope_row",
    "spherical_row",
    "liere_row",
    "alibi_row",
    "riemannformer_row",
    "riemannformer_general_row",
    "riemannformer_relative_row",
    "riemannformer_diagonal_row",
    "locality_row",
    "gated_row",
    "conformal_row",
    "lifted_conformal_row",
    "Reading",
    "rows_of",
    "ROWS",
    "read_conformal",
    "Compass",
    "CommutingCompass",
    "CombCompass",
    "FrameCompass",
    "OrderCompass",
    "TRANSPORTS",
    "read_compass",
]
