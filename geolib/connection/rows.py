"""The table "what joins them": each method's transport and scale in closed form, as plain matrices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from geolib._checks import check_positive, require
from geolib.connection._shared import exp, token_at
from geolib.connection.lattice import straight_path, transport_along
from geolib.connection.steps import turning_steps
from geolib.rotations import plane_generator
from geolib.sympow import lift

__all__ = [
    "Row",
    "alibi_row",
    "conformal_row",
    "gated_row",
    "liere_row",
    "lifted_conformal_row",
    "locality_row",
    "none_row",
    "riemannformer_diagonal_row",
    "riemannformer_general_row",
    "riemannformer_relative_row",
    "riemannformer_row",
    "rope_row",
    "spherical_row",
]

SCORE, INSIDE, AFTER = "score", "inside softmax", "after softmax"


@dataclass(frozen=True)
class Row:
    """One method of the table: its score is scale(m, n) q_m^T transport(m, n) k_n.

    Parameters
    ----------
    transport : function of (p_m, p_n), each (axes,), that returns (d, d)
        From the key's position n to the query's position m.
    log_scale : function of (p_m, p_n) that returns (), or (d,)
        The logarithm of the scale factor; one for each feature where the axes of a grid have scales of their own.
    acts : str
        Where the scale factor acts: it multiplies the "score"; it is a factor "inside softmax", its logarithm added to
        the score; or it multiplies the weights "after softmax".

    >>> alibi_row(2, slope=0.5).log_gate(torch.tensor([3.0]), torch.tensor([1.0]))
    tensor(-1., dtype=torch.float64)

    Source: RF-9, LR-A1, CS-3, CS-A1, RF-22 (the table of methods that joins them).
    """

    method: str
    transport: Callable[[Tensor, Tensor], Tensor]
    log_scale: Callable[[Tensor, Tensor], Tensor]
    acts: str
    learned: str

    def __post_init__(self) -> None:
        require(self.acts in (SCORE, INSIDE, AFTER), "acts", repr(self.acts), f"{SCORE!r}, {INSIDE!r} or {AFTER!r}")

    def bilinear_form(self, p_m: Tensor, p_n: Tensor) -> Tensor:
        """The matrix B (d, d) of the score q_m^T B k_n before any softmax, for two positions (axes,)."""
        # Where the scale acts elsewhere, the matrix is the transport alone.
        transport = self.transport(p_m, p_n)
        return transport * self.log_scale(p_m, p_n).exp() if self.acts == SCORE else transport

    def log_gate(self, p_m: Tensor, p_n: Tensor) -> Tensor:
        """What is added to the score inside the softmax, (); 0 when the scale acts elsewhere."""
        return self.log_scale(p_m, p_n) if self.acts == INSIDE else _unscaled(p_m, p_n)

    def log_attenuation(self, p_m: Tensor, p_n: Tensor) -> Tensor:
        """The logarithm of what multiplies the weight after the softmax, (); 0 when the scale acts elsewhere."""
        return self.log_scale(p_m, p_n) if self.acts == AFTER else _unscaled(p_m, p_n)


def _unscaled(p_m: Tensor, p_n: Tensor) -> Tensor:
    return torch.zeros((), dtype=torch.float64)


def _still(dim: int) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda p_m, p_n: torch.eye(dim, dtype=torch.float64)


def _combined(generators: Tensor, position: Tensor) -> Tensor:
    """sum_a p_a A_a in float64."""
    return torch.einsum("a,aij->ij", position.double(), generators.double())


def none_row(dim: int) -> Row:
    """Attention that ignores positions: the identity, unscaled.

    >>> none_row(2).bilinear_form(torch.tensor([3.0]), torch.tensor([1.0]))
    tensor([[1., 0.],
            [0., 1.]], dtype=torch.float64)

    Source: RF-PE.
    """
    return Row("none", _still(dim), _unscaled, SCORE, "nothing")


def rope_row(frequencies: Tensor) -> Row:
    """RoPE, axial RoPE, VisionLLaMA's and RoPE-Mixed: exp of the plane generator at (p_n - p_m) . theta.

    Theta is (pairs, axes), learned in RoPE-Mixed. q' = R(m theta) q gives R((n - m) theta): the table's R((m - n)
    theta) with RoPE's sign of theta.

    >>> rope_row(torch.tensor([[0.5]])).bilinear_form(torch.tensor([2.0]), torch.tensor([3.0]))
    tensor([[ 0.8776, -0.4794],
            [ 0.4794,  0.8776]], dtype=torch.float64)

    Source: LR-A2, CS-rot, RF-13.
    """

    def transport(p_m: Tensor, p_n: Tensor) -> Tensor:
        return exp(plane_generator(frequencies.double() @ (p_n - p_m).double()))

    return Row("rope", transport, _unscaled, SCORE, "nothing; the frequencies in RoPE-Mixed")


def liere_row(generators: Tensor) -> Row:
    """LieRE: exp(P_m)^T exp(P_n) with P = sum_a p_a A_a, the product of two exponentials and not exp(P_n - P_m).

    >>> generators = torch.tensor([[[0.0, -0.5], [0.5, 0.0]]])  # (axes, d, d), skew
    >>> liere_row(generators).bilinear_form(torch.tensor([2.0]), torch.tensor([3.0]))
    tensor([[ 0.8776, -0.4794],
            [ 0.4794,  0.8776]], dtype=torch.float64)

    Source: LR-A1.
    """

    def transport(p_m: Tensor, p_n: Tensor) -> Tensor:
        back = exp(-_combined(generators, p_m))
        return back @ exp(_combined(generators, p_n))

    return Row("liere", transport, _unscaled, SCORE, "generators")


def spherical_row(generators: Tensor) -> Row:
    """Spherical RoPE: R(m)^T R(n), R(p) the product of the turns exp(p_a A_a), the first axis at the right.

    >>> generators = torch.tensor([[[0.0, -0.5], [0.5, 0.0]]])  # (axes, d, d), skew; with one axis a plane will do
    >>> spherical_row(generators).bilinear_form(torch.tensor([2.0]), torch.tensor([3.0]))
    tensor([[ 0.8776, -0.4794],
            [ 0.4794,  0.8776]], dtype=torch.float64)

    Source: LR-T1.
    """

    def turned(p: Tensor) -> Tensor:
        whole = torch.eye(generators.shape[-1], dtype=torch.float64)
        for along, generator in zip(p.double(), generators.double()):
            whole = exp(along * generator) @ whole
        return whole

    return Row("spherical", lambda p_m, p_n: turned(p_m).mT @ turned(p_n), _unscaled, SCORE, "nothing")


def alibi_row(dim: int, slope: float) -> Row:
    """ALiBi: the identity, and e^{-a |m - n|} inside the softmax, with the slope a of one head.

    On a grid |m - n| is the sum over the axes, the number of steps between n and m: the factor is the product of one
    gate e^{-a} a step along any shortest path.

    >>> alibi_row(2, slope=0.25).log_gate(torch.tensor([3.0, 0.0]), torch.tensor([1.0, 1.0]))
    tensor(-0.7500, dtype=torch.float64)

    Source: CS-A1.
    """

    def log_scale(p_m: Tensor, p_n: Tensor) -> Tensor:
        return -slope * (p_m - p_n).double().abs().sum()

    return Row("alibi", _still(dim), log_scale, INSIDE, "nothing")


def riemannformer_row(generators: Tensor, log_metric: Callable[[Tensor], Tensor]) -> Row:
    """RiemannFormer: exp((m - n) X), scaled by s^{(m+n)/2}.

    Parameters
    ----------
    generators : Tensor, (axes, d, d)
        X for each axis, skew; ``plane_generator`` of theta for the preset of plane rotations. With several axes they
        must commute for this closed form to be the score.
    log_metric : function of a position (axes,) that returns (), or (d,)
        log of the factor of M_p = s^p I: ``lambda p: p[0] * log_s``, or another scale law. With several axes, one
        number for each feature: M_p is s_a^{p_a} I on the planes that turn along axis a.

    >>> row = riemannformer_row(torch.zeros(1, 2, 2), lambda p: p[0] * math.log(0.5))
    >>> row.bilinear_form(torch.tensor([3.0]), torch.tensor([1.0]))  # the square root of 0.5^4
    tensor([[0.2500, 0.0000],
            [0.0000, 0.2500]], dtype=torch.float64)

    Source: RF-6, RF-8, RF-9, RF-13, RF-S.
    """

    def transport(p_m: Tensor, p_n: Tensor) -> Tensor:
        return exp(_combined(generators, p_m - p_n))

    def log_scale(p_m: Tensor, p_n: Tensor) -> Tensor:
        return (log_metric(p_m.double()) + log_metric(p_n.double())) / 2

    return Row("riemannformer", transport, log_scale, SCORE, "s, perhaps theta or X")


def riemannformer_relative_row(generators: Tensor, log_metric: Callable[[Tensor], Tensor]) -> Row:
    """Queries scaled one way and keys the other: exp((m - n) X), scaled by s^{(m-n)/2}.

    Arguments as of ``riemannformer_row``. With a log_metric that is linear the score is relative.

    >>> row = riemannformer_relative_row(torch.zeros(1, 2, 2), lambda p: p[0] * math.log(0.5))
    >>> row.bilinear_form(torch.tensor([3.0]), torch.tensor([1.0]))  # the square root of 0.5^2
    tensor([[0.5000, 0.0000],
            [0.0000, 0.5000]], dtype=torch.float64)

    Source: RF-8, CS-1 (constant s).
    """

    def log_scale(p_m: Tensor, p_n: Tensor) -> Tensor:
        return (log_metric(p_m.double()) - log_metric(p_n.double())) / 2

    transport = riemannformer_row(generators, log_metric).transport
    return Row("riemannformer-relative", transport, log_scale, SCORE, "s, perhaps theta or X")


def _itself(p: Tensor) -> Tensor:
    return p


def riemannformer_general_row(
    frequencies: Tensor, log_scales: Tensor, exponent: Callable[[Tensor], Tensor] = _itself
) -> Row:
    """RiemannFormer with the general metric: R(-m theta) S^{(m+n)/2} R(n theta), the scale inside S.

    Theta is (pairs, axes), the logarithms of S's diagonal (2 pairs, axes); exponent gives S's powers (axes,) at a
    position, from a scale law. The transport includes M_m: it is the whole bilinear form.

    >>> row = riemannformer_general_row(torch.zeros(1, 1), torch.tensor([[0.5], [2.0]]).log())
    >>> row.bilinear_form(torch.tensor([3.0]), torch.tensor([1.0]))
    tensor([[0.2500, 0.0000],
            [0.0000, 4.0000]], dtype=torch.float64)

    Source: RF-A1 to RF-A5, RF-6a.
    """

    def turn(angles: Tensor) -> Tensor:
        return exp(plane_generator(angles))

    def transport(p_m: Tensor, p_n: Tensor) -> Tensor:
        p_m, p_n, theta = p_m.double(), p_n.double(), frequencies.double()
        stretch = torch.diag((log_scales.double() @ (exponent(p_m) + exponent(p_n)) / 2).exp())
        return turn(-theta @ p_m) @ stretch @ turn(theta @ p_n)

    return Row("riemannformer-general", transport, _unscaled, SCORE, "S and theta")


def riemannformer_diagonal_row(
    frequencies: Tensor, log_scales: Tensor, exponent: Callable[[Tensor], Tensor] = _itself
) -> Row:
    """RiemannFormer with a diagonal metric: S^{m/2} R((m - n) theta) S^{n/2}, the scales outside the rotation.

    Arguments as of ``riemannformer_general_row``; the transport includes M_m: it is the whole bilinear form.

    >>> row = riemannformer_diagonal_row(torch.tensor([[math.pi / 2]]), torch.tensor([[0.5], [2.0]]).log())
    >>> row.bilinear_form(torch.tensor([2.0]), torch.tensor([1.0])).round(decimals=4)
    tensor([[ 0.0000, -0.7071],
            [ 1.4142,  0.0000]], dtype=torch.float64)

    Source: RF-5, RF-6, RF-6a.
    """

    def root(p: Tensor) -> Tensor:
        return torch.diag((log_scales.double() @ exponent(p.double()) / 2).exp())

    def transport(p_m: Tensor, p_n: Tensor) -> Tensor:
        turn = exp(plane_generator(frequencies.double() @ (p_m - p_n).double()))
        return root(p_m) @ turn @ root(p_n)

    return Row("riemannformer-diagonal", transport, _unscaled, SCORE, "S and theta")


def locality_row(dim: int, sigma: float, shape: Tensor | None = None) -> Row:
    """Locality focusing: the identity, and exp(-|p_m - p_n|_A^2 / (2 sigma^2)) after the softmax.

    sigma is in units of position; A (axes, axes) is symmetric positive definite, None the identity.

    >>> locality_row(2, sigma=2.0).log_attenuation(torch.tensor([3.0, 0.0]), torch.tensor([1.0, 2.0]))
    tensor(-1., dtype=torch.float64)

    Source: RF-19 to RF-22.
    """
    check_positive(sigma, "sigma")

    def log_scale(p_m: Tensor, p_n: Tensor) -> Tensor:
        apart = (p_m - p_n).double()
        return -(apart @ (apart if shape is None else shape.double() @ apart)) / (2 * sigma**2)

    return Row("locality", _still(dim), log_scale, AFTER, "sigma, A")


def gated_row(log_gates: Tensor, frequencies: Tensor, positions: Tensor) -> Row:
    """RoPE's rotations and the gates of a document, multiplied up along its tokens and acting inside the softmax.

    log gamma_k (tokens,) is passed on the step from token k - 1 to token k; a key after the query has log scale -inf.
    Positions (tokens, axes) say where the tokens stand, in their order and no two at one place: the row knows no
    others.

    >>> row = gated_row(torch.tensor([0.9, 0.5, 0.8]).log(), torch.zeros(1, 1), torch.tensor([[0.0], [1.0], [2.0]]))
    >>> row.log_gate(torch.tensor([2.0]), torch.tensor([0.0])).exp()
    tensor(0.4000, dtype=torch.float64)

    Source: CS-gate, CS-rot, CS-A1.
    """

    def log_scale(p_m: Tensor, p_n: Tensor) -> Tensor:
        m, n = token_at(positions, p_m), token_at(positions, p_n)
        if n > m:
            return torch.tensor(-torch.inf, dtype=torch.float64)
        return log_gates.double()[n + 1 : m + 1].sum()

    return Row("sympow-gates", rope_row(frequencies).transport, log_scale, INSIDE, "gates, from the data on the path")


def conformal_row(log_gates: Tensor, rates: Tensor, frequencies: Tensor) -> Row:
    """Conformal-sympow on R^d: rotations and gates multiplied up along the tokens between n and m.

    log gamma and beta are (tokens,), theta (pairs,) in radians; token k's gate is passed on the step from k - 1 to k.
    Positions are token indices. The scale multiplies the p-th power of q^T P k; the transport is R(c_mn theta)^T with
    c_mn the sum of beta_{n+1} ... beta_m: the paper prints it without the transpose.

    >>> row = conformal_row(torch.tensor([0.9, 0.5, 0.8]).log(), torch.ones(3), torch.tensor([math.pi / 4]))
    >>> row.bilinear_form(torch.tensor([2.0]), torch.tensor([0.0])).round(decimals=4)
    tensor([[ 0.0000,  0.4000],
            [-0.4000,  0.0000]], dtype=torch.float64)

    Source: CS-gate, CS-beta, CS-conf, CS-2.
    """
    line = turning_steps([-rates[1:].double()], frequencies.double())

    def transport(p_m: Tensor, p_n: Tensor) -> Tensor:
        return transport_along(line, straight_path((int(p_n.item()),), (int(p_m.item()),)))

    def log_scale(p_m: Tensor, p_n: Tensor) -> Tensor:
        m, n = int(p_m.item()), int(p_n.item())
        require(m >= n, "p_n", n, f"a gate is passed forward in time alone: it must be at most p_m = {m}")
        return log_gates.double()[n + 1 : m + 1].sum()

    return Row("conformal-sympow", transport, log_scale, SCORE, "gates and rates, from the data along the path")


def lifted_conformal_row(log_gates: Tensor, rates: Tensor, frequencies: Tensor, power: int) -> Row:
    """Conformal-sympow on Sym^p: the same transport, lifted; the score phi(q)^T B phi(k) is linear in phi.

    Of dimension binom(d + p - 1, p), in the order of ``geolib.sympow``.

    >>> row = lifted_conformal_row(torch.tensor([0.9, 0.5]).log(), torch.ones(2), torch.zeros(1), power=2)
    >>> row.bilinear_form(torch.tensor([1.0]), torch.tensor([0.0])).diag()
    tensor([0.5000, 0.5000, 0.5000], dtype=torch.float64)

    Source: CS-P3, CS-3.
    """
    below = conformal_row(log_gates, rates, frequencies)
    return Row(
        "conformal-sympow, lifted",
        lambda p_m, p_n: lift(below.transport(p_m, p_n), power),
        below.log_scale,
        SCORE,
        below.learned,
    )
