"""Symmetric-power attention in three forms: attention, recurrent and chunked, with gates and data-dependent rotations.

For an even power p, with gates g_i in (0, 1] and cumulative rotations mu_i, all three compute::

    B_ij = b_ij (Q'_i . K'_j)^p,   b_ij = g_(j+1) ... g_i,   Q'_i = R(mu_i) Q_i,   K'_j = R(mu_j) K_j,   j <= i
    Y_i  = sum_j B_ij V_j / sum_j B_ij

The attention form takes time quadratic in the tokens. The recurrent form carries a state: S_i = g_i S_(i-1) + V_i
phi(K'_i)^T and Z_i = g_i Z_(i-1) + phi(K'_i)^T, and mu_i. The chunked form computes pairs inside a chunk as attention
does and everything older through the state, in time and memory linear in the tokens.

Conventions
-----------
Queries and keys are (batch, heads, tokens, d), values (batch, heads, tokens, value_dim), log gates (batch, heads,
tokens) and at most 0, turns (batch, heads, tokens, d/2) in radians: how far each pair turns from the token before.
``rotate_pairs`` with the angle mu is applied to queries and keys alike, so the score is Q_i . R(mu_i - mu_j)^T K_j.

A log gate of -inf is a *reset*: the token and all after it see nothing of what came before, a carried state included,
and no derivative goes there. So is any log gate of -1e4 or less, as the most negative number of a dtype. A reset at the
first token of every packed document makes it what it is alone. There may be no tokens and no batch.

Arithmetic is in float32 (float64 when an input is float64) outside autocast; sums of log gates and of turns are kept in
float64, because small differences of large sums are what is used. Outputs have the values' dtype.

Powers from 4 on
----------------
The recurrent form goes through the state in float64, and S and Z come out so. So do up to 64 tokens in chunks, and more
where gates leave fewer than 16 keys at the end of a chunk, as near the beginning of a packed document: among few keys
float32 has too few digits. Other texts are read in float32. On a GPU, in a graph and under a transform of functions
gates are not looked at, and float32 is kept. Factors in bfloat16 are rounded further: for few keys, use float32 inputs.

Small normalisers
-----------------
The output does not depend on the length of a query. Where the normaliser is exactly zero (a query orthogonal to every
key it sees, or zero) the output is 0 and its logarithm is -inf. A normaliser read from a state is a difference of large
terms: below machine epsilon times its Cauchy-Schwarz bound |Q_i|^p sum_j b_ij |K_j|^p it consists of rounding errors,
and that multiple of the bound takes its place. Outputs and gradients then stay finite. The attention form has no such
terms and no such limit: there the weights of a nearly orthogonal query are those of its rounded scores.

Rooms: ``gates``, ``state``, ``forms`` (attention and recurrent), ``fused`` (attention on a GPU), ``chunks``, ``costs``,
``layers``. All names are importable from here.
"""

from geolib.recurrence import chunks, costs, forms, fused, gates, layers, state
from geolib.recurrence.chunks import *  # noqa: F403
from geolib.recurrence.costs import *  # noqa: F403
from geolib.recurrence.forms import *  # noqa: F403
from geolib.recurrence.fused import *  # noqa: F403
from geolib.recurrence.gates import *  # noqa: F403
from geolib.recurrence.layers import *  # noqa: F403
from geolib.recurrence.state import *  # noqa: F403

__all__ = [name for room in (gates, state, forms, fused, chunks, costs, layers) for name in room.__all__]
