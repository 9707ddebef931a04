"""Sphere, hyperbolic plane and torus in closed form: what the computations must agree with.

Points of the unit sphere are (..., 3) with X.X = 1.
"""

import torch
from torch import Tensor

__all__ = [
    "embed_spherical", "embed_stereographic", "half_plane_to_disk", "latitude_transport", "spherical_area",
    "torus_curvature",
]  # fmt: skip


def latitude_transport(colatitude: Tensor, longitude: Tensor) -> Tensor:
    """Parallel transport (..., 2, 2) along a circle of latitude, this much longitude eastward, in radians.

    In the coordinate basis of ``sphere_spherical``: on unit vectors (south, east), the rotation by
    -longitude cos(colatitude).
    Source: RF-PT.

    >>> latitude_transport(torch.tensor(math.pi / 3), torch.tensor(math.pi)).round(decimals=4).tolist()  # quarter
    [[0.0, 0.866], [-1.1547, 0.0]]
    """
    angle, sin = -longitude.double() * colatitude.double().cos(), colatitude.double().sin()
    rows = [torch.stack([angle.cos(), -angle.sin() * sin], -1), torch.stack([angle.sin() / sin, angle.cos()], -1)]
    return torch.stack(rows, -2)


def torus_curvature(theta: Tensor, major: float = 2.0, minor: float = 1.0) -> Tensor:
    """The curvature of the torus at the angle theta round the tube: cos theta / (minor (major + minor cos theta)).
    Source: RF-PT.

    >>> torus_curvature(torch.tensor([0.0, math.pi])).round(decimals=4)  # outer and inner equator
    tensor([ 0.3333, -1.0000])
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


def half_plane_to_disk(points: Tensor) -> Tensor:
    """Cayley's isometry from the half-plane to the Poincare disk: w = (z - i) / (z + i), (0, 1) to the centre.

    >>> half_plane_to_disk(torch.tensor([[0.0, 1.0], [0.0, 3.0]])).tolist()
    [[0.0, 0.0], [0.5, 0.0]]
    """
    x, y = points.unbind(-1)
    return torch.stack([x**2 + y**2 - 1, 0 - 2 * x], -1) / (x**2 + (y + 1) ** 2)[..., None]


def spherical_area(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """The area of a triangle of great circles: tan(area/2) = det(a, b, c) / (1 + a.b + b.c + c.a).

    Positive when the corners (..., 3) run counter-clockwise seen from outside.
    Source: RF-PT.

    >>> round(float(spherical_area(*torch.eye(3))) / math.pi, 6)  # an eighth of 4 pi
    0.5
    """
    volume = torch.linalg.det(torch.stack([a, b, c], -1))
    return 2 * torch.atan2(volume, 1 + (a * b).sum(-1) + (b * c).sum(-1) + (c * a).sum(-1))
