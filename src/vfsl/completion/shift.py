"""Whether the given party's remaining rows differ from the common ones, and by how much.

Holds   the given party: its columns for both. The missing party: nothing.
Learns  the missing party: whether they differ; if so, a rounded number for each row: how typical it
        is of the remaining rows by the other's columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from vfsl.channel import Channel, expect_array
from vfsl.completion.conformal import odds
from vfsl.completion.selection import Floats
from vfsl.completion.sides import Side
from vfsl.data import Encoder
from vfsl.data.checks import check_share
from vfsl.parts import Roles
from vfsl.values import Disclosure, Disclosures

DISCLOSURES: Disclosures = {
    "difference": Disclosure(
        dict,
        "how well the sender's columns tell common from remaining rows (rounded); if they do, how "
        "typical each row is of the remaining ones, to two digits",
    ),
}


@dataclass(frozen=True, eq=False)
class Shift:
    """How common and remaining rows differ.

    Attributes
    ----------
    auc : float
        How well the given party's columns tell them apart; 0.5 is not at all.
    common, rest : array, optional
        How typical of the remaining rows each row is, where they differ.
    """

    auc: float
    common: Floats | None = None
    rest: Floats | None = None


@dataclass
class MeasureShift:
    """Compare common and remaining rows by the given party's own columns.

    Parameters
    ----------
    least : float
        From which AUC on rows count as different.
    """

    name: ClassVar[str] = "shift"

    least: float = 0.6

    def train(
        self, channel: Channel, side: Side | None, *, roles: Roles, rng: np.random.Generator
    ) -> Shift | None:
        """One party's side; the missing party gets the answer."""
        check_share("MeasureShift", "least", self.least)
        channel = channel.within(self.name, DISCLOSURES)
        given = roles.feature_holders[0]
        if channel.me == given and side is not None:
            answer = self._compared(side, rng)
            # Two digits of a number between 1/20 and 20: less than a quarter of its 32 bits.
            described = len(answer.get("weights", ()))
            channel.release(roles.label_holder, "how typical rows are", -(-described // 4))
            channel.send(roles.label_holder, "difference", answer)
            return None
        if channel.me != roles.label_holder:
            return None
        came = channel.receive(given, "difference")
        auc = float(came.get("auc", 0.5))
        if "weights" not in came:
            return Shift(auc)
        common = 0 if side is None else len(side.overlap)
        weights = expect_array(
            came["weights"], sender=given, name="difference", holds="float", shape=(None,)
        )
        return Shift(auc, weights[:common], weights[common:])

    def _compared(self, side: Side, rng: np.random.Generator) -> dict[str, Any]:
        auc, chances = separated(side, rng)
        if auc < self.least:
            return {"auc": round(auc, 2)}
        return {"auc": round(auc, 2), "weights": rounded(odds(chances))}


def separated(side: Side, rng: np.random.Generator) -> tuple[float, Floats]:
    """How well columns tell remaining from common rows, out of fold, and each row's probability."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    rest = np.repeat([0, 1], [len(side.overlap), len(side.rest)])
    if min(len(side.overlap), len(side.rest)) < 10:
        return 0.5, np.full(len(rest), 0.5)
    matrix = Encoder(missing="impute").fit_transform(side.table.take(side.rows)).matrix
    if not matrix.shape[1]:
        return 0.5, np.full(len(rest), 0.5)
    folds = StratifiedKFold(5, shuffle=True, random_state=int(rng.integers(1 << 31)))
    # A strong penalty: a hundred weak columns must not tell rows apart by chance.
    model = LogisticRegression(C=0.1, max_iter=500)
    chances = cross_val_predict(model, matrix, rest, cv=folds, method="predict_proba")[:, 1]
    return float(roc_auc_score(rest, chances)), np.asarray(chances)


def rounded(values: Floats, digits: int = 2) -> Floats:
    """Positive numbers to so many significant digits."""
    scale = 10.0 ** (digits - 1 - np.floor(np.log10(values)))
    return np.asarray(np.round(values * scale) / scale)
