"""Private alignment: who is in both tables, without showing who is not."""

from vfsl.align.aided import Question, align_aided, find_common, help_parties
from vfsl.align.blind_rsa import BlindingPool, RsaKey
from vfsl.align.ecdh import CurveKey
from vfsl.align.ids import IdList, Normalise, prepare_ids
from vfsl.align.intersect import Matches, Served, intersect_client, intersect_server
from vfsl.align.plan import RowPlan, RowShare
from vfsl.align.psi import PROTOCOLS, Alignment, BadElement, Caution, PsiProtocol
from vfsl.align.roles import (
    align,
    align_hub,
    align_server,
    alignment_roles,
    ask_for_marks,
    mark_aided,
    mark_client,
    mark_server,
)
from vfsl.align.state import Limits, SignatureCache

__all__ = [
    "PROTOCOLS",
    "Alignment",
    "BadElement",
    "BlindingPool",
    "Caution",
    "CurveKey",
    "IdList",
    "Limits",
    "Matches",
    "Normalise",
    "PsiProtocol",
    "Question",
    "RowPlan",
    "RowShare",
    "RsaKey",
    "Served",
    "SignatureCache",
    "align",
    "align_aided",
    "align_hub",
    "align_server",
    "alignment_roles",
    "ask_for_marks",
    "find_common",
    "help_parties",
    "intersect_client",
    "intersect_server",
    "mark_aided",
    "mark_client",
    "mark_server",
    "prepare_ids",
]
