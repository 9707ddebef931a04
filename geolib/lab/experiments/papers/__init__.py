"""The experiments: a file for each paper, and one for digits, found by their ``EXPERIMENTS``, a tuple of Experiment."""

# What is pending first: an experiment, words that pick its runs as ``--only`` does (none: all), and seeds (None: its
# own). A quarter of an hour of a GPU holds the first two; an hour of one the grid, ``riemannformer-baselines``.
_COLUMNS = "none", "sinusoidal", "rope", "lf", "riemannformer", "riemannformer+lf"
FIRST = (
    ("riemannformer-table1", ("rope-axial/cifar10",), (0, 1)),
    ("riemannformer-table1", ("riemannformer/cifar10",), (1,)),
    ("riemannformer-table1", ("far-0.5/cifar10", "rope-100/cifar10"), (0,)),
    ("riemannformer-table1", tuple(f"{row}/cifar100" for row in _COLUMNS), (0,)),
    ("liere-cifar100", ("learned", "liere-2", "liere-8", "liere-64"), (0,)),
    ("sympow-context", ("softmax@1024", "sympow+gates@1024", "softmax@8192", "sympow+gates@8192"), (0,)),
    *((name, (), None) for name in ("riemannformer-baselines", "riemannformer-table1", "liere-cifar100")),
)
