"""Statistics over seeds: differences taken seed by seed, and what the choice of test images adds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from geolib._checks import require
from geolib.lab.records import Record


@dataclass(frozen=True)
class PairedDifference:
    """The differences of two methods' accuracies, seed by seed.

    Parameters
    ----------
    seeds : tuple of int
        Those that both methods have.
    differences : tuple of float
        In percentage points, one a seed.
    """

    seeds: tuple[int, ...]
    differences: tuple[float, ...]

    @property
    def count(self) -> int:
        """Number of common seeds, n."""
        return len(self.seeds)

    @property
    def mean(self) -> float:
        """Mean difference in percentage points; nan without a common seed."""
        return statistics.mean(self.differences) if self.differences else math.nan

    @property
    def standard_error(self) -> float | None:
        """Standard deviation of the differences over sqrt(n), in points; None for fewer than 2 seeds."""
        return statistics.stdev(self.differences) / math.sqrt(self.count) if self.count >= 2 else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """The paired 95 % t interval of the mean, in points; None for fewer than 3 seeds, where it says nothing."""
        if self.count < 3 or self.standard_error is None:
            return None
        from scipy.special import stdtrit  # the quantile of Student's t; scipy.stats takes a second to import

        half = float(stdtrit(self.count - 1, 0.975)) * self.standard_error
        return self.mean - half, self.mean + half

    @property
    def within_noise(self) -> bool | None:
        """Whether the interval holds 0; None where there is no interval."""
        return None if self.interval is None else self.interval[0] <= 0 <= self.interval[1]

    def __str__(self):
        if not self.count:
            return "no common seed"
        if self.standard_error is None:
            return f"{self.mean:+.2f} (1 seed)"
        text = f"{self.mean:+.2f} ± {self.standard_error:.2f} ({self.count} seeds"
        if self.interval is not None:
            text += f", 95 % interval {self.interval[0]:+.2f} to {self.interval[1]:+.2f}"
        return text + ")"


def paired_differences(records_a: Iterable[Record], records_b: Iterable[Record]) -> PairedDifference:
    """Accuracy of a minus accuracy of b for every seed that both have.

    A seed decides the order of the images and their augmentation for all methods alike, so differences at one seed
    vary less than the accuracies themselves.

    Parameters
    ----------
    records_a, records_b : iterable of Record
        Each of one method on one data set, one record a seed.

    Returns
    -------
    PairedDifference
        Percentage points, seeds ascending.

    Raises
    ------
    ValueError
        When two records of one side have the same seed.
    """
    a, b = _by_seed(records_a, "records_a"), _by_seed(records_b, "records_b")
    seeds = tuple(sorted(a.keys() & b.keys()))
    return PairedDifference(seeds, tuple(100 * (a[seed] - b[seed]) for seed in seeds))


def _by_seed(records: Iterable[Record], argument: str) -> dict[int, float]:
    accuracies: dict[int, float] = {}
    for record in records:
        seed = record.config.seed
        require(seed not in accuracies, argument, f"two records of seed {seed}", "one record a seed")
        accuracies[seed] = record.accuracy
    return accuracies


def verdict(low: float, high: float, named: float = 0.0) -> str:
    """What may be said of the claim that something is above 0, by the ends of an interval of it.

    Parameters
    ----------
    low, high : float
        Of the 95 % interval.
    named : float
        The size that the claim names, 0 or above; 0 where it names none.

    Returns
    -------
    str
        "seen": the interval leaves out 0 and does not end below the size named. "not seen": it ends below that size.
        "turned round": it ends below 0. "undecided": it holds 0 and that size.

    Examples
    --------
    >>> verdict(0.3, 1.2), verdict(0.3, 1.2, named=2.0), verdict(-0.4, 1.2)
    ('seen', 'not seen', 'undecided')
    """
    require(low <= high, "low", f"{low} above high {high}", "the ends of an interval, the lower first")
    require(named >= 0, "named", named, "it must be 0 or above")
    if high < 0:
        return "turned round"
    if high < named:
        return "not seen"
    return "seen" if low > 0 else "undecided"


def sampling_error(accuracy: float, images: int) -> float:
    """How far an accuracy moves, one standard deviation, when its test images are drawn again.

    Parameters
    ----------
    accuracy : float
        In [0, 1].
    images : int
        Test images, above 0.

    Returns
    -------
    float
        sqrt(p (1 - p) / N) in percentage points, of one model. All seeds share the test images, so their spread does
        not show it.
    """
    require(0 <= accuracy <= 1, "accuracy", accuracy, "it must be in [0, 1]")
    require(images > 0, "images", images, "it must be above 0")
    return 100 * math.sqrt(accuracy * (1 - accuracy) / images)


def difference_error(accuracy_a: float, accuracy_b: float, images: int, disagreement: float | None = None) -> float:
    """How far the difference of two accuracies moves, one standard deviation, when its test images are drawn again.

    Parameters
    ----------
    accuracy_a, accuracy_b : float
        In [0, 1].
    images : int
        Test images that both are judged on, above 0.
    disagreement : float, optional
        Share u of the images on which exactly one is right; without it, that of two independent models.

    Returns
    -------
    float
        sqrt((u - (a - b)^2) / N) in percentage points, of these two trained models.

    Examples
    --------
    >>> round(difference_error(0.8, 0.7, 500, disagreement=0.2), 3)
    1.949
    """
    a, b = accuracy_a, accuracy_b
    for name, accuracy in (("accuracy_a", a), ("accuracy_b", b)):
        require(0 <= accuracy <= 1, name, accuracy, "it must be in [0, 1]")
    require(images > 0, "images", images, "it must be above 0")
    u = a + b - 2 * a * b if disagreement is None else disagreement
    least, most = abs(a - b), min(a + b, 2 - a - b)
    rounding = 1e-9
    came, allowed = f"{u:g}", f"between {least:g} and {most:g} for these accuracies"
    require(least - rounding <= u <= most + rounding, "disagreement", came, allowed)
    return 100 * math.sqrt(max(0.0, u - (a - b) ** 2) / images)


def mcnemar(first_only: int, second_only: int) -> float:
    """McNemar's exact test: how likely a fair coin falls so unevenly on the images where exactly one model is right.

    Parameters
    ----------
    first_only, second_only : int
        Test images on which only the first, only the second model is right.

    Returns
    -------
    float
        The two-sided p-value, in (0, 1]; 1 when the two models never disagree.

    Examples
    --------
    >>> mcnemar(8, 1)
    0.0390625
    """
    for name, count in (("first_only", first_only), ("second_only", second_only)):
        require(count >= 0 and count == int(count), name, count, "a number of images, 0 or more")
    throws, fewer = int(first_only + second_only), int(min(first_only, second_only))
    tail = sum(math.comb(throws, i) for i in range(fewer + 1))
    return min(1.0, 2 * tail / 2**throws)
