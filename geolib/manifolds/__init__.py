"""Riemannian geometry one can compute: metrics, connections, geodesics, parallel transport, holonomy, curvature.

A manifold is given by a chart: a metric as a function of a point, and the region where it holds. All else follows from
the metric. Christoffel symbols come by automatic differentiation; geodesics and parallel transport solve their
differential equations with SciPy's Dormand-Prince method of order 8, to the tolerances of the chart.

Its rooms, in the order in which chapter 2 enters them; every name is also a name of ``geolib.manifolds``:

- ``charts``: a metric on coordinates; the sphere, the hyperbolic plane, the torus; lengths and frames;
- ``curvature``: Christoffel symbols and the curvature they have;
- ``transport``: curves, parallel transport along them, holonomy round loops;
- ``geodesics``: shooting, the shortest way between two points, distance, polygons of geodesics;
- ``conformal``: flat space rescaled, e^{2f} |dx|^2, in closed form; the metric s^{x_1} |dx|^2;
- ``models``: sphere, hyperbolic plane and torus in closed form, which all the computations must agree with.

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

from geolib.manifolds.charts import (
    Chart,
    half_plane,
    norm,
    orthonormal_frame,
    poincare_disk,
    sphere_spherical,
    sphere_stereographic,
    torus,
)
from geolib.manifolds.conformal import (
    conformal_christoffel,
    conformal_curvature,
    conformally_flat,
    power_metric,
)
from geolib.manifolds.curvature import christoffel, gaussian_curvature, riemann, sectional_curvature
from geolib.manifolds.geodesics import (
    distance,
    exponential,
    geodesic,
    geodesic_holonomy,
    geodesic_transport,
    logarithm,
)
from geolib.manifolds.models import (
    embed_spherical,
    embed_stereographic,
    half_plane_to_disk,
    latitude_transport,
    spherical_area,
    torus_curvature,
)
from geolib.manifolds.transport import (
    Curve,
    Path,
    circle,
    curvature_from_holonomy,
    holonomy,
    holonomy_angle,
    parallel_transport,
    polygon,
    rotation_angle,
    segment,
    square_loop,
    transport_matrix,
)

# In the order of the rooms, which is the order of the reference page.
__all__ = [
    "Chart",
    "Curve",
    "Path",
    "christoffel",
    "circle",
    "conformal_christoffel",
    "conformal_curvature",
    "conformally_flat",
    "curvature_from_holonomy",
    "distance",
    "embed_spherical",
    "embed_stereographic",
    "exponential",
    "gaussian_curvature",
    "geodesic",
    "geodesic_holonomy",
    "geodesic_transport",
    "half_plane",
    "half_plane_to_disk",
    "holonomy",
    "holonomy_angle",
    "latitude_transport",
    "logarithm",
    "norm",
    "orthonormal_frame",
    "parallel_transport",
    "poincare_disk",
    "polygon",
    "power_metric",
    "riemann",
    "rotation_angle",
    "sectional_curvature",
    "segment",
    "sphere_spherical",
    "sphere_stereographic",
    "spherical_area",
    "square_loop",
    "torus",
    "torus_curvature",
    "transport_matrix",
]  # fmt: skip
