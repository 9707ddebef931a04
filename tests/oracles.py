"""Each registered method again, in float64 NumPy, one query and one key at a time, from the papers' formulas.

Nothing of geolib is used but the numbers that a method has learned, so that an error in it cannot stand on both sides.
"""

import functools
import itertools
import math

import numpy as np
import scipy.linalg
from scipy.spatial.transform import Rotation


def number(parameter):
    """A parameter as float64 numbers."""
    return parameter.detach().double().numpy()


def turn(angle):
    """Counter-clockwise."""
    return np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])


def mirror(angle):
    """The reflection about the line at that angle."""
    return np.array([[math.cos(2 * angle), math.sin(2 * angle)], [math.sin(2 * angle), -math.cos(2 * angle)]])


def geometric(count, base):
    """base^(-i/count), rounded as constants of a model are."""
    return [float(np.float32(base ** (-i / count))) for i in range(count)]


def axial(dim, axes, base):
    """(theta, axis) of each pair: pairs in as many runs as there are axes, the first ones longer by one."""
    pairs = dim // 2
    sizes = [pairs // axes + (axis < pairs % axes) for axis in range(axes)]
    return [(theta, axis) for axis, size in enumerate(sizes) for theta in geometric(size, base)]


def alternating(dim, axes, base):
    """(theta, axis) of each pair: the axes take turns, and share their frequencies."""
    rounds = dim // 2 // axes
    return [(theta, axis) for theta in geometric(rounds, base) for axis in range(axes)]


def reading(p, grid):
    """The index of a cell in reading order."""
    index = 0.0
    for cell, size in zip(p, grid):
        index = index * size + cell
    return index


class Oracle:
    """One method at work in a layer and head; ``map`` is what T^-1 does to a query or key at p."""

    def __init__(self, encoding, grid, dim, layer=0, head=0):
        self.encoding, self.grid, self.dim, self.layer, self.head = encoding, grid, dim, layer, head

    power = None  # an even power in place of the exponential

    def map(self, p):
        return np.eye(self.dim)

    def key_map(self, p):
        return self.map(p)

    def gate(self, m, n, positions, x):
        return 0.0

    def omega(self, p, r, query):
        return 1.0

    def blocks(self, matrices):
        """Blocks along the diagonal, and ones below where they do not reach."""
        whole = np.eye(self.dim)
        filled = scipy.linalg.block_diag(*matrices)
        whole[: len(filled), : len(filled)] = filled
        return whole


class Rope(Oracle):
    def map(self, p):
        i = reading(p, self.grid)
        return self.blocks([turn(i * theta) for theta in geometric(self.dim // 2, 10000.0)])


class Axial(Oracle):
    def map(self, p):
        return self.blocks([turn(p[a] * theta) for theta, a in axial(self.dim, len(self.grid), 100.0)])


class Spherical(Oracle):
    def map(self, p):
        blocks = []
        for theta in geometric(self.dim // 3, 100.0):
            about = [Rotation.from_rotvec(at * theta * axis) for at, axis in zip(p, np.eye(3))]
            blocks.append(functools.reduce(lambda done, turned: turned * done, about).as_matrix())
        return self.blocks(blocks)


class RopePair(Oracle):
    def map(self, p):
        return self.blocks([turn(sum(cell * 0.5 / 2**axis for axis, cell in enumerate(p)))])


class Visionllama(Oracle):
    def map(self, p):
        whole = self.dim - self.dim % (2 * len(self.grid))
        return self.blocks([turn(p[a] * theta) for theta, a in alternating(whole, len(self.grid), 10000.0)])


class Alibi(Oracle):
    def gate(self, m, n, positions, x):
        heads = len(self.encoding.slopes)
        slope = float(np.float32(2 ** (-8 * (self.head + 1) / heads)))
        return -slope * float(np.abs(positions[m] - positions[n]).sum())


class Rmt(Oracle):
    def omega(self, p, r, query):
        decay = 1 - 2 ** (-2 - 4 * self.head / len(self.encoding.slopes))
        return math.exp(float(np.float32(math.log(decay))) * np.abs(p - r).sum())


class LieRE(Oracle):
    def map(self, p):
        entries = number(self.encoding.generators)
        entries = entries[min(self.layer, len(entries) - 1)]
        entries = entries[min(self.head, len(entries) - 1)]  # (blocks, axes, entries)
        b = self.encoding.width
        unit = self.unit()
        matrices = []
        for block in entries:
            total = np.zeros((b, b))
            for at, one, upper in zip(p, unit, block):
                for entry, (i, j) in zip(upper, itertools.combinations(range(b), 2)):
                    total[i, j] += at / one * entry
            matrices.append(scipy.linalg.expm(total - total.T))
        return self.blocks(matrices)

    def unit(self):
        return [max(cells - 1, 1) for cells in self.grid]


class RopeMixed(LieRE):
    def unit(self):
        return [1.0] * len(self.grid)


class Riemannian(Oracle):
    half_turns = 1.0
    by_pair = False  # scales of each axis, or two of each pair

    def scales(self):
        w = number(self.encoding.raw_scale)
        s = np.exp(w) / (np.exp(w) + 0.1)
        return s[min(self.head, len(s) - 1)]

    def pairs(self):
        return axial(self.dim, len(self.grid), 100.0)

    def map(self, p):
        s, pairs = self.scales(), self.pairs()
        scales = [s[j if self.by_pair else a] for j, (_, a) in enumerate(pairs)]
        return self.blocks([self.pair(p[a], theta / self.half_turns, s) for s, (theta, a) in zip(scales, pairs)])

    def pair(self, m, theta, s):
        return s ** (m / 2) * turn(-m * theta)


class RiemannianGeneral(Riemannian):
    by_pair = True

    def pair(self, m, theta, s):
        return np.diag(s ** (m / 2)) @ turn(m * theta)


class RiemannianDiagonal(RiemannianGeneral):
    def pair(self, m, theta, s):
        return turn(-m * theta) @ np.diag(s ** (m / 2))


class RiemannianReflection(Riemannian):
    half_turns = 2.0

    def pair(self, m, theta, s):
        return s ** (m / 2) * mirror(m * theta)


class RiemannianRelative(Riemannian):
    def key_map(self, p):
        s = self.scales()
        return self.blocks([s[a] ** (-p[a] / 2) * turn(-p[a] * theta) for theta, a in self.pairs()])


class Around(Oracle):
    """What is added around another oracle."""

    def __init__(self, inner, encoding, grid, dim, layer=0, head=0):
        super().__init__(encoding, grid, dim, layer, head)
        self.inner = inner

    def map(self, p):
        return self.inner.map(p)

    def key_map(self, p):
        return self.inner.key_map(p)

    def gate(self, m, n, positions, x):
        return self.inner.gate(m, n, positions, x)

    def omega(self, p, r, query):
        return self.inner.omega(p, r, query)

    def second(self, kind):
        return kind(self.encoding.parts[1], self.grid, self.dim, self.layer, self.head)


class Powered(Around):
    power = 2


class WithAlibi(Around):
    def gate(self, m, n, positions, x):
        return self.inner.gate(m, n, positions, x) + self.second(Alibi).gate(m, n, positions, x)


class WithRmt(Around):
    def omega(self, p, r, query):
        return self.inner.omega(p, r, query) * self.second(Rmt).omega(p, r, query)


class Focused(Around):
    """The Gaussian after the softmax."""

    def omega(self, p, r, query):
        return math.exp(self.exponent(p, r, query)) * self.inner.omega(p, r, query)

    def exponent(self, p, r, query):
        raw = number(self.encoding.raw_precision)
        root = np.tril(raw, -1) + np.diag(np.exp(np.diag(raw)))
        widths = np.exp(number(self.encoding.log_sigma))[self.head]
        sigma = widths[query] if len(widths) > 1 else widths[0]
        gap = p - r
        return -gap @ (root @ root.T) @ gap / (2 * sigma**2)


class Gauss(Focused):
    """The Gaussian inside it."""

    def gate(self, m, n, positions, x):
        return self.inner.gate(m, n, positions, x) + self.exponent(positions[m], positions[n], m)

    def omega(self, p, r, query):
        return self.inner.omega(p, r, query)


class CompassPaths(Oracle):
    """Vectors carried one step after another along the L-shaped path, the axes in order or, in odd heads, reversed."""

    def gate(self, m, n, positions, x):
        axes, of = len(self.grid), self.encoding.vectors
        turns = x @ number(self.encoding.W_turn.weight).T + number(self.encoding.W_turn.bias)
        turns = turns.reshape(*self.grid, -1, axes, 3)[..., self.head, :, :]
        u, w = (
            (number(linear.weight) @ x[token]).reshape(-1, of, 3)[self.head]
            for linear, token in ((self.encoding.W_u, m), (self.encoding.W_w, n))
        )
        goal, here = np.unravel_index(m, self.grid), list(np.unravel_index(n, self.grid))
        for axis in range(axes)[:: -1 if self.head % 2 else 1]:
            while here[axis] != goal[axis]:
                forward = goal[axis] > here[axis]
                here[axis] += forward
                step = cayley(turns[(*here, axis)])
                here[axis] -= not forward
                w = w @ (step.T if forward else step)
        return float((u * w).sum())


def cayley(v):
    """(I - K)^-1 (I + K), with K x = v x x."""
    K = np.array([[0, -v[2], v[1]], [v[2], 0, -v[0]], [-v[1], v[0], 0]])
    return np.linalg.solve(np.eye(3) - K, np.eye(3) + K)


class SympowGates(Oracle):
    def map(self, p):
        i = reading(p, self.grid)
        thetas = [float(np.float32(2 * math.pi * 65536.0 ** (-j / (self.dim // 2)))) for j in range(self.dim // 2)]
        return self.blocks([turn(i * theta) for theta in thetas])

    def gate(self, m, n, positions, x):
        if n > m:
            return -math.inf
        logits = x[n + 1 : m + 1] @ number(self.encoding.W_gamma.weight)[self.head] + self.encoding.gate_bias
        return -float(np.log1p(np.exp(-logits)).sum())


def weights(found, q, k, positions, x):
    """Attention's weights of one head: q, k (tokens, dim), positions (tokens, axes), x (tokens, width)."""
    tokens, dim = q.shape
    scores, omega = np.empty((tokens, tokens)), np.empty((tokens, tokens))
    for m in range(tokens):
        for n in range(tokens):
            a, b = found.map(positions[m]) @ q[m], found.key_map(positions[n]) @ k[n]
            scores[m, n], gate = a @ b / math.sqrt(dim), found.gate(m, n, positions, x)
            if found.power:
                scores[m, n] = found.power * math.log(abs(scores[m, n])) + gate
            else:
                scores[m, n] += gate
            omega[m, n] = found.omega(positions[m], positions[n], m)
    e = np.exp(scores - scores.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True) * omega
