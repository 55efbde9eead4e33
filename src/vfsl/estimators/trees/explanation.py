"""An explanation of scores as a table: a party's side of it, from its share and its rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from vfsl.crypto.shares import Session
from vfsl.estimators.trees import explaining
from vfsl.estimators.trees.binning import Bins
from vfsl.estimators.trees.state import rules_of, trees_for
from vfsl.parts import ModelShare, Part, Roles
from vfsl.values import Array


def play_explanation(
    session: Session,
    part: Part | None,
    share: ModelShare | None,
    roles: Roles,
    party: str | None,
) -> pd.DataFrame | None:
    """One party's side: by party at the label holder, or by column at ``party``."""
    leader = roles.label_holder
    if part is None or share is None:
        if party is None:
            explaining.deal_contributions(session, leader)
        else:
            explaining.deal_columns(session, leader, party)
        return None
    bins = Bins.from_dict(share.state["bins"])
    own = bins, bins.transform(part.table.take(part.rows))
    names = [column.name for column in bins.columns]
    if session.me != leader:
        if party is None:
            explaining.answer_contributions(session, leader, own, rules_of(share))
            return None
        each = explaining.answer_columns(session, leader, own, rules_of(share), party)
        return None if each is None else name_contributions(each, names, [])
    trees, outputs = trees_for(share, roles), share.state["output"]
    start = np.asarray(share.state["start"], dtype=np.float64)
    kinds = share.state["classes"] if len(start) > 1 else []
    if party is not None:
        each = explaining.lead_columns(session, own, trees, outputs, len(start), party)
        return None if each is None else name_contributions(each, names, kinds)
    base, parts = explaining.lead_contributions(session, own, trees, outputs, start)
    added = np.concatenate([np.broadcast_to(base[:, None], (*parts.shape[:2], 1)), parts], axis=2)
    return name_contributions(added, ["base", *roles.data_holders], kinds)


def name_contributions(values: Array, names: Sequence[str], kinds: Sequence[Any]) -> pd.DataFrame:
    """Contributions (rows, outputs, names) as columns; of several outputs under class names."""
    if values.shape[1] == 1:
        return pd.DataFrame(values[:, 0], columns=list(names))
    classes = list(kinds) or list(range(values.shape[1]))  # only the label holder knows them
    columns = pd.MultiIndex.from_product([classes, list(names)])
    return pd.DataFrame(values.reshape(len(values), -1), columns=columns)
