"""Sphere, hyperbolic plane and torus in closed form: what the computations must agree with.

Points of the unit sphere are (..., 3) with X.X = 1; points of the hyperboloid (X, Y, Z) have X^2 + Y^2 - Z^2 = -1 and
Z > 0, and their inner product is ``minkowski``.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = [
    "embed_disk",
    "embed_spherical",
    "embed_stereographic",
    "great_circle",
    "half_plane_to_disk",
    "hyperbola",
    "hyperbolic_area",
    "latitude_transport",
    "minkowski",
    "spherical_area",
    "torus_curvature",
]


def latitude_transport(colatitude: Tensor, longitude: Tensor) -> Tensor:
    """Parallel transport (..., 2, 2) along a circle of latitude, this much longitude eastward, in radians.

    In the coordinate basis of ``sphere_spherical``: on unit vectors (south, east), the rotation by
    -longitude cos(colatitude).

    >>> latitude_transport(torch.tensor(math.pi / 3), torch.tensor(math.pi)).round(decimals=4)  # a quarter turn
    tensor([[ 0.0000,  0.8660],
            [-1.1547,  0.0000]], dtype=torch.float64)

    Source: RF-PT.
    """
    angle, sin = -longitude.double() * colatitude.double().cos(), colatitude.double().sin()
    rows = [torch.stack([angle.cos(), -angle.sin() * sin], -1), torch.stack([angle.sin() / sin, angle.cos()], -1)]
    return torch.stack(rows, -2)


def torus_curvature(theta: Tensor, major: float = 2.0, minor: float = 1.0) -> Tensor:
    """The curvature of the torus at the angle theta round the tube: cos theta / (minor (major + minor cos theta)).

    >>> torus_curvature(torch.tensor([0.0, math.pi])).round(decimals=4)  # outer and inner equator
    tensor([ 0.3333, -1.0000])

    Source: RF-PT.
    """
    return theta.cos() / (minor * (major + minor * theta.cos()))


# Into space -----------------------------------------------------------------------------------------------------------


def embed_spherical(points: Tensor) -> Tensor:
    """The unit sphere's point (..., 3) with this colatitude and longitude (..., 2).

    >>> embed_spherical(torch.tensor([math.pi / 2, 0.0])).round(decimals=6).tolist()[:2]
    [1.0, 0.0]
    """
    theta, phi = points.unbind(-1)
    return torch.stack([theta.sin() * phi.cos(), theta.sin() * phi.sin(), theta.cos()], -1)


def embed_stereographic(points: Tensor) -> Tensor:
    """The unit sphere's point over a point (..., 2) of the stereographic chart: (2x, 1 - |x|^2) / (1 + |x|^2).

    >>> embed_stereographic(torch.tensor([[0.0, 0.0], [1.0, 0.0]])).tolist()
    [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
    """
    square = points.square().sum(-1, keepdim=True)
    return torch.cat([2 * points, 1 - square], -1) / (1 + square)


def embed_disk(points: Tensor) -> Tensor:
    """The hyperboloid's point over a point (..., 2) of the Poincare disk: (2x, 1 + |x|^2) / (1 - |x|^2).

    >>> embed_disk(torch.tensor([0.5, 0.0])).round(decimals=4)
    tensor([1.3333, 0.0000, 1.6667])
    """
    square = points.square().sum(-1, keepdim=True)
    return torch.cat([2 * points, 1 + square], -1) / (1 - square)


def half_plane_to_disk(points: Tensor) -> Tensor:
    """Cayley's isometry from the half-plane to the Poincare disk: w = (z - i) / (z + i), (0, 1) to the centre.

    >>> half_plane_to_disk(torch.tensor([[0.0, 1.0], [0.0, 3.0]])).tolist()
    [[0.0, 0.0], [0.5, 0.0]]
    """
    x, y = points.unbind(-1)
    return torch.stack([x**2 + y**2 - 1, 0 - 2 * x], -1) / (x**2 + (y + 1) ** 2)[..., None]


# Geodesics and areas --------------------------------------------------------------------------------------------------


def great_circle(point: Tensor, velocity: Tensor, t: Tensor) -> Tensor:
    """The unit sphere's geodesic: cos(|v|t) X + sin(|v|t) v/|v|, for v orthogonal to X; t broadcasts to (..., 1).

    >>> pole, east = torch.tensor([0.0, 0.0, 1.0]), torch.tensor([math.pi, 0.0, 0.0])
    >>> great_circle(pole, east, torch.tensor([0.5])).abs().round(decimals=6).tolist()
    [1.0, 0.0, 0.0]

    Source: RF-PT.
    """
    speed = velocity.norm(dim=-1, keepdim=True)
    return (speed * t).cos() * point + (speed * t).sin() * velocity / speed


def minkowski(a: Tensor, b: Tensor) -> Tensor:
    """The inner product of the space in which the hyperboloid lies: a_1 b_1 + a_2 b_2 - a_3 b_3.

    >>> minkowski(torch.tensor([0.0, 0.0, 1.0]), torch.tensor([0.0, 0.0, 1.0])).tolist()
    -1.0
    """
    return a[..., 0] * b[..., 0] + a[..., 1] * b[..., 1] - a[..., 2] * b[..., 2]


def hyperbola(point: Tensor, velocity: Tensor, t: Tensor) -> Tensor:
    """The hyperboloid's geodesic: cosh(|v|t) X + sinh(|v|t) v/|v|, for v orthogonal to X; t broadcasts to (..., 1).

    >>> top, east = torch.tensor([0.0, 0.0, 1.0]), torch.tensor([1.0, 0.0, 0.0])
    >>> hyperbola(top, east, torch.tensor([1.0])).round(decimals=4)
    tensor([1.1752, 0.0000, 1.5431])

    Source: RF-PT.
    """
    speed = minkowski(velocity, velocity).sqrt()[..., None]
    return (speed * t).cosh() * point + (speed * t).sinh() * velocity / speed


def spherical_area(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """The area of a triangle of great circles: tan(area/2) = det(a, b, c) / (1 + a.b + b.c + c.a).

    Positive when the corners (..., 3) run counter-clockwise seen from outside.

    >>> round(float(spherical_area(*torch.eye(3))) / math.pi, 6)  # an eighth of 4 pi
    0.5

    Source: RF-PT.
    """
    volume = torch.linalg.det(torch.stack([a, b, c], -1))
    return 2 * torch.atan2(volume, 1 + (a * b).sum(-1) + (b * c).sum(-1) + (c * a).sum(-1))


def hyperbolic_area(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """The area of a hyperbolic triangle: tan(area/2) = det(a, b, c) / (1 - <a,b> - <b,c> - <c,a>).

    Positive when the corners (..., 3), on the hyperboloid, run counter-clockwise in the disk.

    >>> corners = embed_disk(torch.tensor([[0.0, 0.0], [0.999, 0.0], [0.0, 0.999]]))
    >>> round(float(hyperbolic_area(*corners)), 2)  # a right angle and two of nearly 0: near pi/2
    1.57

    Source: RF-PT.
    """
    volume = torch.linalg.det(torch.stack([a, b, c], -1))
    return 2 * torch.atan2(volume, 1 - minkowski(a, b) - minkowski(b, c) - minkowski(c, a))
