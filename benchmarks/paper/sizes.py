"""How much each of the papers' experiments measures: the full form, and a quick one.

Plain values, so that ``--set`` can change them. Quick forms use data that come with the package.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

OVERLAPS = (0.01, 0.1, 0.2, 0.3, 0.4, 0.5)
NINE = ("ctgan", "tablegan", "ctabgan", "vae", "tvae", "tabddpm", "gain", "vgain", "vfgain")
# Every way in which an `Ensemble` makes one answer of several.
FIVE = ("all",)


@dataclass(frozen=True)
class VfpuSizes:
    """VFPU: data sets, bases, and curves over M (outers) and T (rounds)."""

    data: tuple[str, ...] = ("census", "bank", "credit")
    curves: tuple[str, ...] = ()  # where M and T are varied; () is all
    rows: int = 8_000  # for training, and as many for the test
    labelled: float = 0.1  # fraction of the positives that is known
    bases: tuple[str, ...] = ("lr", "rf", "gbdt", "xgb", "lgb")
    outer: int = 3  # M, where T is varied and in the comparison of bases
    rounds: int = 20  # T, where M is varied
    outers: tuple[int, ...] = (1, 2, 3, 5, 10)
    many_rounds: tuple[int, ...] = (5, 10, 20, 50, 100)
    promote: float = 0.02
    trees: int = 0  # per tree base; 0: its default
    seeds: tuple[int, ...] = (0, 1, 2)


@dataclass(frozen=True)
class FedpsgSizes:
    """FedPSG-PUM: data, a row per method below τ, and the settings of the paper."""

    data: tuple[str, ...] = ("census", "bank", "credit")
    train: int = 6_000
    test: int = 6_000
    overlap: float = 0.3
    missing: float = 0.0  # fraction of B's cells that are missing on common rows
    low: tuple[str, ...] = ("mean", *NINE)
    ensembles: tuple[str, ...] = FIVE
    members: tuple[str, ...] = ("tabddpm", "gain", "tvae")
    base: str = "linear"
    tau: float = 0.5
    aggregate: str = "max"  # by the mean hardly a column of these data passes 0.5
    alpha: float = 0.8
    k: float = 0.1
    rounds: int = 10
    epochs: int = 0  # of networks; 0: the defaults of each
    seeds: tuple[int, ...] = (0, 1, 2)


@dataclass(frozen=True)
class SweepSizes(FedpsgSizes):
    """FedPSG-PUM with one setting changed at a time."""

    low: tuple[str, ...] = ("tabddpm",)
    ensembles: tuple[str, ...] = ()
    taus: tuple[float, ...] = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
    alphas: tuple[float, ...] = (0.7, 0.75, 0.8, 0.85, 0.9)
    ks: tuple[float, ...] = (0.05, 0.1, 0.15, 0.2)
    many_rounds: tuple[int, ...] = (1, 2, 5, 10, 20)
    overlaps: tuple[float, ...] = (0.05, 0.1, 0.2, 0.3, 0.5)
    rates: tuple[float, ...] = (0.1, 0.3, 0.5, 0.7)


@dataclass(frozen=True)
class GeneratorSizes:
    """The nine: rows of the fidelity table, rows of completion."""

    data: tuple[str, ...] = ("census", "credit")
    rows: int = 10_000
    completed_rows: int = 6_000
    small: bool = False  # networks of the quick form of `vfsl bench run generators`
    seeds: tuple[int, ...] = (0, 1, 2)


@dataclass(frozen=True)
class RisaSizes:
    """RISA beside its rivals. The paper has 50,000 pictures, and 9,000,000 rows of Criteo."""

    data: tuple[str, ...] = ("cifar10",)
    rows: int = 6_000
    judged: int = 2_000
    epochs: int = 12
    width: int = 16  # channels of the first block of a CNN
    overlaps: tuple[float, ...] = OVERLAPS
    methods: tuple[str, ...] = ()  # () is all
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)


@dataclass(frozen=True)
class RisaSweepSizes:
    """RISA of the paper with one setting changed at a time, and label noise."""

    data: tuple[str, ...] = ("mnist", "criteo")
    rows: int = 2_000
    judged: int = 2_000
    epochs: int = 15
    width: int = 8
    overlap: float = 0.1
    tau_p: tuple[float, ...] = (0.5, 0.7, 0.8, 0.9, 0.95, 0.99)
    tau_0: tuple[float, ...] = (0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
    every: tuple[int, ...] = (1, 2, 3, 5)
    noise: tuple[float, ...] = (0.0, 0.1, 0.2, 0.3, 0.4)
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)


Sizes = VfpuSizes | FedpsgSizes | GeneratorSizes | RisaSizes | RisaSweepSizes

_CRITEO = RisaSizes(data=("criteo",), rows=6_400, judged=1_600, epochs=6)
FULL: dict[str, Sizes] = {
    "vfpu-bases": VfpuSizes(),
    "fedpsg": FedpsgSizes(),
    "fedpsg-sweeps": SweepSizes(),
    "generators": GeneratorSizes(),
    "risa-table1": RisaSizes(),
    "risa-table2": _CRITEO,
    "risa-table3": RisaSizes(data=("cifar10", "criteo"), overlaps=(0.1,)),
    "risa-sweeps": RisaSweepSizes(),
}

_FEW = FedpsgSizes(
    data=("breast_cancer",),
    train=380,
    test=180,
    overlap=0.5,
    tau=0.7,
    rounds=3,
    epochs=3,
    seeds=(0,),
    members=("gain", "mean"),
)
_DIGITS = RisaSizes(data=("digits",), rows=300, judged=300, epochs=4, overlaps=(0.1,), seeds=(0,))
QUICK: dict[str, Sizes] = {
    "vfpu-bases": VfpuSizes(
        data=("breast_cancer",),
        rows=280,
        labelled=0.3,
        outer=2,
        rounds=3,
        outers=(1, 2),
        many_rounds=(2, 3),
        trees=3,
        seeds=(0,),
    ),
    "fedpsg": _FEW,
    "fedpsg-sweeps": SweepSizes(
        data=("breast_cancer",),
        train=380,
        test=180,
        overlap=0.5,
        tau=0.7,
        low=("gain",),
        rounds=3,
        epochs=3,
        taus=(0.3, 0.7),
        alphas=(0.7, 0.9),
        ks=(0.05, 0.2),
        many_rounds=(1, 3),
        overlaps=(0.45, 0.6),
        rates=(0.1, 0.5),
        seeds=(0,),
    ),
    "generators": GeneratorSizes(
        data=("made up",), rows=400, completed_rows=400, small=True, seeds=(0,)
    ),
    "risa-table1": _DIGITS,
    "risa-table2": replace(_DIGITS, data=("breast_cancer",), judged=200),
    "risa-table3": replace(_DIGITS, data=("digits", "breast_cancer"), judged=200),
    "risa-sweeps": RisaSweepSizes(
        data=("digits",),
        rows=300,
        judged=300,
        epochs=4,
        tau_p=(0.5, 0.9),
        tau_0=(0.3, 0.7),
        every=(1, 2),
        noise=(0.0, 0.4),
        seeds=(0,),
    ),
}
