"""Probes on training of trees: columns by chains of splits, and candidates that add up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from vfsl.audit.findings import Change, Control, Finding, Marks, at_chance, open_door
from vfsl.audit.probe import Probe, pairs_of
from vfsl.audit.trees import Sides, match, read_columns
from vfsl.audit.views import Case, training_places
from vfsl.estimators.trees.tree import Node
from vfsl.federation import Scene
from vfsl.values import Array, Floats, Integers

_SEED = 20241


def attack_chains(case: Case, probe: Probe) -> Iterator[Finding]:
    """Columns that the sides of rows at splits of trees put in order."""
    for attacker, target in pairs_of(case):
        columns = case.encoded(target)
        if not columns.shape[1] or not _trains_trees(case):
            continue
        best, line, rho = 0.0, "", 0.0
        for step, scene, found in _sides(case, attacker, target):
            places = training_places(scene.standing[attacker])
            found = {node: keep_first(*one, len(places)) for node, one in found.items()}
            rows = case.common(scene, target)[places]
            truth = columns[rows][:, columns[rows].std(axis=0) > 0]
            correlation = read_columns(found, truth)
            value = float((correlation > 0.9).mean())
            if value >= best:
                best, rho = value, float(correlation.max(initial=0.0))
                line = f"step {step}: {target} → {attacker}: sides of rows at splits"
        yield probe.finding(
            attacker,
            target,
            best,
            0.0,
            _chain_controls(columns, probe.marks),
            line=line or "no sides of rows",
            change=Change(
                "train a linear model or RISA on these columns, or fewer and smaller trees: the "
                "label holder of trees follows each training row to its leaf"
            )
            if best
            else None,
            note=f"largest rank correlation {rho:.2f}" if line else "",
        )


def keep_first(rows: Array, left: Array, count: int) -> tuple[Array, Array]:
    """Sides of common rows: completed rows, where a model has any, come after these."""
    inside = rows < count
    return rows[inside], left[inside]


def _trains_trees(case: Case) -> bool:
    return any(
        record.settings.get("model") in ("xgb", "gbdt", "lgb", "rf")
        for scene in case.scenes
        for record in scene.records
        if record.name.startswith("train")
    )


def _sides(case: Case, attacker: str, target: str) -> Iterator[tuple[int, Scene, Sides]]:
    """Sides at the target's splits that one training showed, by tree and node."""
    for step, scene in enumerate(case.scenes, start=1):
        found: dict[tuple[str, int, int], tuple[Array, Array]] = {}
        holders = [p for p in scene.standing[attacker].aligned if p != attacker]
        for one in scene.transcript.openings:
            if one.party == attacker and one.name.endswith("/sides"):
                batch = one.name.rpartition("/level")[0]
                for node, (place, rows, left) in one.values.items():
                    if holders[place - 1] == target:
                        found[batch, node.tree, node.number] = rows, left
        if found:
            yield step, scene, found


def _chain_controls(columns: Floats, marks: Marks) -> list[Control]:
    """All sides of all rows at many thresholds, and the same of other rows."""
    rng = np.random.default_rng(_SEED)
    columns = columns[: min(len(columns), 1000), :6]
    rows = np.arange(len(columns))
    sides = {}
    for at in range(columns.shape[1]):
        for quantile in np.linspace(0.1, 0.9, 15):
            left = columns[:, at] <= np.quantile(columns[:, at], quantile)
            if 0 < left.sum() < len(left):
                sides[at, float(quantile)] = (rows, left)
    by_chain = read_columns(sides, columns)
    mixed = rng.permutation(len(columns))
    by_luck = read_columns({node: (mixed, left) for node, (_, left) in sides.items()}, columns)
    return [
        open_door("every side of every row", float((by_chain > 0.9).mean()), marks),
        at_chance("sides of other rows", float((by_luck > 0.9).mean()), marks),
    ]


def attack_candidates(case: Case, probe: Probe) -> Iterator[Finding]:
    """Nameless candidates of a node that are found again in both of its children."""
    for attacker, target in pairs_of(case):
        if not case.encoded(target).shape[1] or not _trains_trees(case):
            continue
        found, there, line = 0, 0, ""
        for step, scene in enumerate(case.scenes, start=1):
            holders = [p for p in scene.standing[attacker].aligned if p != attacker]
            if target not in holders:
                continue
            for sums, children in _candidate_sums(scene, attacker, holders.index(target) + 1):
                hits, whole = count_matches(sums, children)
                found, there = found + hits, there + whole
                line = f"step {step}: {target} → {attacker}: sums of candidates"
        yield probe.finding(
            attacker,
            target,
            found / max(there, 1),
            0.0,
            _candidate_controls(probe.marks),
            line=line or "no sums of candidates",
            change=Change('show ratings only: candidates = "auto"') if line else None,
            note=f"{found} of {there} candidates of inner nodes" if there else "",
        )


def _candidate_sums(
    scene: Scene, attacker: str, place: int
) -> Iterator[tuple[Mapping[Node, Integers], Mapping[Node, tuple[Node, Node]]]]:
    """Of each batch of trees: sums by node, and the children that nodes were split into."""
    sums: dict[str, dict[Node, Integers]] = {}
    splits: dict[str, dict[Node, tuple[Node, Node]]] = {}
    for one in scene.transcript.openings:
        if one.party != attacker:
            continue
        batch = one.name.rpartition("/level")[0]
        if one.name.endswith("/sums of candidates"):
            mine = {node: shown for node, (of, shown) in one.values.items() if of == place}
            sums.setdefault(batch, {}).update(mine)
        elif one.name.endswith("/children"):
            splits.setdefault(batch, {}).update(one.values)
    for batch, nodes in sums.items():
        yield nodes, splits.get(batch, {})


def count_matches(
    sums: Mapping[Node, Integers], children: Mapping[Node, tuple[Node, Node]]
) -> tuple[int, int]:
    """How many candidates of nodes are found in both children, and how many there are."""
    found, there = 0, 0
    for node, (left, right) in children.items():
        if {node, left, right} <= sums.keys():
            hits = match(sums[node], sums[left], sums[right])
            found += len({place for place, _, _ in hits})
            there += len(sums[node])
    return found, there


def _candidate_controls(marks: Marks) -> list[Control]:
    """Sums of random rows that add up, and sums of other nodes, which do not."""
    rng = np.random.default_rng(_SEED)
    left, right, other = rng.integers(-(1 << 30), 1 << 30, (3, 40, 2))
    node, one, two = Node(0, 0), Node(0, 1), Node(0, 2)
    rates = []
    for sums in (left + right, other):
        found, there = count_matches({node: sums, one: left, two: right}, {node: (one, two)})
        rates.append(found / there)
    return [
        open_door("sums of a node and its children", rates[0], marks),
        at_chance("a node with the children of another", rates[1], marks),
    ]


CHAINS = Probe(
    "tree-chains",
    "Do the sides of training rows at splits put the other's columns in order?",
    "fraction of columns with a rank correlation above 0.9",
    Marks(0.0, 0.25),
    attack_chains,
)
CANDIDATES = Probe(
    "tree-candidates",
    "Can it follow the other's nameless split candidates down a tree?",
    "fraction of candidates found again in both children",
    Marks(0.0, 0.25),
    attack_candidates,
)
