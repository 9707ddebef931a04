"""Statistics of compared runs: differences seed by seed, their verdicts, and what the choice of test images adds."""

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from scipy.special import bdtr, stdtr, stdtrit  # the binomial's and Student's distributions, and Student's quantile

from geolib._checks import require
from geolib.lab.files import LabError
from geolib.lab.records import Record, bits_of


@dataclass(frozen=True)
class PairedDifference:
    """The differences of two methods' accuracies in percentage points, one for each seed that both have."""

    seeds: tuple[int, ...]
    differences: tuple[float, ...]

    @property
    def count(self) -> int:
        """Number of common seeds, n."""
        return len(self.seeds)

    @property
    def mean(self) -> float:
        """Mean difference in points; nan without a common seed."""
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
        half = float(stdtrit(self.count - 1, 0.975)) * self.standard_error
        return self.mean - half, self.mean + half

    @property
    def p_value(self) -> float | None:
        """Student's two-sided p-value of no difference, below 0.05 where the interval excludes 0; None without one."""
        if self.count < 3 or self.standard_error is None:
            return None
        return 2 * float(stdtr(self.count - 1, -abs(self.mean) / (self.standard_error or 5e-324)))

    @property
    def within_noise(self) -> bool | None:
        """Whether the interval holds 0; None where there is no interval."""
        return None if self.interval is None else self.interval[0] <= 0 <= self.interval[1]

    def __str__(self):
        if not self.count:
            return "no common seed"
        if self.standard_error is None:
            return f"{self.mean:+.2f} (1 seed)"
        ends = "" if self.interval is None else ", 95 % interval {:+.2f} to {:+.2f}".format(*self.interval)
        return f"{self.mean:+.2f} ± {self.standard_error:.2f} ({self.count} seeds{ends})"


def paired_differences(records_a: Iterable[Record], records_b: Iterable[Record]) -> PairedDifference:
    """Accuracy of a minus accuracy of b for every seed that both have, in percentage points, seeds ascending.

    A seed decides the order of images for all methods alike, so these vary less than accuracies. ValueError where one
    side has two records of one seed.
    """
    a: dict[int, float] = {}
    b: dict[int, float] = {}
    for side, name, records in ((a, "records_a", records_a), (b, "records_b", records_b)):
        for record in records:
            seed = record.config.seed
            require(seed not in side, name, f"two records of seed {seed}", "one record a seed")
            side[seed] = record.accuracy
    seeds = tuple(sorted(a.keys() & b.keys()))
    return PairedDifference(seeds, tuple(100 * (a[seed] - b[seed]) for seed in seeds))


def holm(p_values: Iterable[float], level: float = 0.05) -> list[bool]:
    """Which tests survive Holm's correction: with probability 1 - level none that does is of no difference in truth.

    >>> holm([0.02, 0.01, 0.04, 0.03]), holm([0.001, 0.024, 0.011])
    ([False, True, False, False], [True, True, True])
    """
    values = list(p_values)
    require(all(0 <= value <= 1 for value in values), "p_values", values, "each from 0 to 1")
    order = sorted(range(len(values)), key=values.__getitem__)
    failing = (rank for rank, i in enumerate(order) if values[i] > level / (len(values) - rank))
    lasting = set(order[: next(failing, len(order))])
    return [i in lasting for i in range(len(values))]


def verdict(low: float, high: float, named: float = 0.0, part: bool = False) -> str:
    """What may be said of the claim that something is above 0, by the ends of its 95 % interval and the size ``named``.

    "seen": it excludes 0 and does not end below the size that the claim names. "not seen": it ends below that size.
    "turned round": it ends below 0; with a ``part`` of the test set alone that is "not seen". "undecided": it holds 0
    and that size. ValueError for exchanged ends and for a size below 0.

    >>> verdict(0.3, 1.2), verdict(0.3, 1.2, named=2.0), verdict(-0.4, 1.2)
    ('seen', 'not seen', 'undecided')
    """
    require(low <= high, "low", f"{low} above high {high}", "the ends of an interval, the lower first")
    require(named >= 0, "named", named, "it must be 0 or above")
    if high < 0 and not part:
        return "turned round"
    if high < max(0, named):
        return "not seen"
    return "seen" if low > 0 else "undecided"


def sampling_error(accuracy: float, images: int) -> float:
    """The standard error of an accuracy p in [0, 1] over the choice of N test images: sqrt(p (1 - p) / N) in points."""
    require(0 <= accuracy <= 1, "accuracy", accuracy, "it must be in [0, 1]")
    require(images > 0, "images", images, "it must be above 0")
    return 100 * math.sqrt(accuracy * (1 - accuracy) / images)


def difference_error(accuracy_a: float, accuracy_b: float, images: int, disagreement: float | None = None) -> float:
    """The standard error of the difference of two accuracies in [0, 1] over the choice of their N common test images.

    It is sqrt((u - (a - b)^2) / N) in points for these two trained models, where u, the ``disagreement``, is the share
    of the images on which exactly one of them is right; without it, that of two independent models.

    >>> round(difference_error(0.8, 0.7, 500, disagreement=0.2), 3)
    1.949
    """
    a, b = accuracy_a, accuracy_b
    for name, accuracy in (("accuracy_a", a), ("accuracy_b", b)):
        require(0 <= accuracy <= 1, name, accuracy, "it must be in [0, 1]")
    require(images > 0, "images", images, "it must be above 0")
    u = a + b - 2 * a * b if disagreement is None else disagreement
    least, most, rounding = abs(a - b), min(a + b, 2 - a - b), 1e-9
    allowed = f"between {least:g} and {most:g} for these accuracies"
    require(least - rounding <= u <= most + rounding, "disagreement", f"{u:g}", allowed)
    return 100 * math.sqrt(max(0.0, u - (a - b) ** 2) / images)


def disagreement(record_a: Record, record_b: Record) -> tuple[int, int]:
    """The counts of test images that only the first and only the second trained model classifies rightly.

    LabError where a record does not hold its answers, as older ones and those of text, or where test images differ.
    """
    for record in (record_a, record_b):
        if not record.answers:
            raise LabError(f"{record.name}: the record does not say which test images were classified rightly")
    a, b = ({key: record.data.get(key) for key in ("fingerprint", "test_images")} for record in (record_a, record_b))
    if a != b:
        raise LabError(f"{record_a.name} and {record_b.name} have different test images: {a} and {b}")
    first, second = (bits_of(record.answers, record.data["test_images"]) for record in (record_a, record_b))
    return int((first & ~second).sum()), int((second & ~first).sum())


def mcnemar(first_only: int, second_only: int) -> float:
    """McNemar's exact test: the two-sided p-value of so uneven a split of the images where exactly one model is right.

    >>> round(mcnemar(8, 1), 4)
    0.0391
    """
    for name, count in (("first_only", first_only), ("second_only", second_only)):
        require(count >= 0 and count == int(count), name, count, "a number of images, 0 or more")
    return min(1.0, 2 * float(bdtr(min(first_only, second_only), first_only + second_only, 0.5)))
