"""What a method's module computes, read off by feeding it basis vectors: to compare with the rows of the table."""

import torch
from torch import Tensor

from geolib._checks import require
from geolib.attention import Encoding


def _pair(p_m: Tensor, p_n: Tensor) -> Tensor:
    """Two tokens, the query's position and the key's, (2, axes)."""
    require(p_m.dim() == 1 and p_m.shape == p_n.shape, "p_m", f"shape {tuple(p_m.shape)}", "it must be (axes,), as p_n")
    return torch.stack([p_m, p_n])


def measured_bilinear_form(
    encoding: Encoding, p_m: Tensor, p_n: Tensor, head_dim: int, heads: int = 1, layer: int = 0
) -> Tensor:
    """The matrix B with score = q_m^T B k_n, read off a module by feeding it basis vectors.

    Parameters
    ----------
    encoding : Encoding
    p_m, p_n : Tensor, (axes,)
        Positions of the query and of the key.
    head_dim : int
    heads : int

    Returns
    -------
    Tensor, (heads, head_dim, head_dim)
        float64; entry [h, i, j] is the score of query e_i with key e_j in head h.

    Source: RF-9, LR-A1, CS-3, CS-A1, RF-22 (the table of methods that joins them).
    """
    return measured_bilinear_forms(encoding, _pair(p_m, p_n), head_dim, heads, layer)[0, 1]


def measured_bilinear_forms(
    encoding: Encoding, positions: Tensor, head_dim: int, heads: int = 1, layer: int = 0
) -> Tensor:
    """The same for all pairs of a document, (tokens, tokens, heads, head_dim, head_dim), float64."""
    basis = torch.eye(head_dim, dtype=torch.float64)[:, None, None, :].expand(-1, heads, len(positions), -1)
    q, k = encoding.place(positions).layer(layer).to_reference(basis, basis)
    return torch.einsum("ihmd,jhnd->mnhij", q, k).detach()


def measured_log_gate(encoding: Encoding, p_m: Tensor, p_n: Tensor, width: int, layer: int = 0) -> Tensor:
    """What a module adds to the score of the query at m and the key at n inside the softmax, 0 for nothing.

    Parameters
    ----------
    encoding : Encoding
        One whose gate does not depend on the tokens' contents: it is given zeros.
    p_m, p_n : Tensor, (axes,)
    width : int
        Features of a token.

    Returns
    -------
    Tensor, broadcastable to (heads,)

    Source: CS-A1.
    """
    return measured_log_gates(encoding, torch.zeros(2, width, dtype=torch.float64), _pair(p_m, p_n), layer)[..., 0, 1]


def measured_log_gates(encoding: Encoding, x: Tensor, positions: Tensor, layer: int = 0) -> Tensor:
    """What a module adds to the scores of a whole document inside the softmax, zeros for nothing.

    Parameters
    ----------
    encoding : Encoding
    x : Tensor, (tokens, width)
    positions : Tensor, (tokens, axes)

    Returns
    -------
    Tensor, (heads or 1, tokens, tokens)
        float64; row: query, column: key.

    Source: CS-gate, CS-A1.
    """
    tokens, gate = len(x), encoding.place(positions).layer(layer).log_gate(x[None])
    none = torch.zeros(1, tokens, tokens, dtype=torch.float64)
    return none if gate is None else gate.detach().double().reshape(-1, tokens, tokens)


def measured_log_attenuation(encoding: Encoding, p_m: Tensor, p_n: Tensor, layer: int = 0) -> Tensor:
    """The logarithm of what a module multiplies the weight of the key at n by, after the softmax; 0 for nothing.

    Parameters
    ----------
    encoding : Encoding
    p_m, p_n : Tensor, (axes,)

    Returns
    -------
    Tensor, broadcastable to (heads,)

    Source: RF-19.
    """
    return measured_log_attenuations(encoding, _pair(p_m, p_n), layer)[..., 0, 1]


def measured_log_attenuations(encoding: Encoding, positions: Tensor, layer: int = 0) -> Tensor:
    """The logarithms of what a module multiplies the weights of a whole document by, after the softmax.

    Parameters
    ----------
    encoding : Encoding
    positions : Tensor, (tokens, axes)

    Returns
    -------
    Tensor, (heads or 1, tokens, tokens)
        float64; zeros for nothing.

    Source: RF-19, RF-22.
    """
    tokens, factor = len(positions), encoding.place(positions).layer(layer).attenuation()
    none = torch.zeros(1, tokens, tokens, dtype=torch.float64)
    return none if factor is None else factor.detach().double().log().reshape(-1, tokens, tokens)
