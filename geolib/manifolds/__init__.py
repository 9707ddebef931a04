"""Riemannian geometry one can compute: metrics, connections, geodesics, parallel transport, holonomy, curvature.

A manifold is given by a chart: a metric as a function of a point, and the region where it holds. All else follows from
the metric. Christoffel symbols come by automatic differentiation; geodesics and parallel transport solve their
differential equations with SciPy's Dormand-Prince method of order 8, to the tolerances of the chart.

The rooms are ``charts`` (a metric on coordinates; sphere, hyperbolic plane, torus, flat space rescaled), ``curvature``,
``transport`` (curves, transport, holonomy), ``geodesics`` (shooting, the shortest way, polygons) and ``models`` (closed
forms, which all the computations must agree with). Every name is also a name of ``geolib.manifolds``.

Conventions
-----------
Everything is float64. A point is ``(n,)``; leading dimensions are a batch. Vectors are given by their components in
the coordinate basis, on the last dimension; a matrix acts on columns. A *curve* is a function of a scalar tensor
t in [0, 1], written with torch operations, that returns a point (or a batch of points: a batch of curves, solved
together). A *path* is one curve or a sequence of curves, each starting where the one before it ends. Angles are in
radians, counter-clockwise in the chart's orientation. Whatever takes points refuses one outside the chart, and a
matrix there that is not a metric, with a ValueError.

>>> loop = square_loop(torch.tensor([0.3, 0.2]), 0.1)
>>> round(float(holonomy_angle(sphere_stereographic(), loop)), 6)  # the area inside
0.031265
"""

from geolib.manifolds import charts, curvature, geodesics, models, transport
from geolib.manifolds.charts import *  # noqa: F403
from geolib.manifolds.curvature import *  # noqa: F403
from geolib.manifolds.geodesics import *  # noqa: F403
from geolib.manifolds.models import *  # noqa: F403
from geolib.manifolds.transport import *  # noqa: F403

__all__ = [name for room in (charts, curvature, transport, geodesics, models) for name in room.__all__]
