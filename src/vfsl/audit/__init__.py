"""`vfsl audit`: what each party of a run could compute about the others, attacked and measured."""

from vfsl.audit.findings import Change, Control, Finding, Marks
from vfsl.audit.run import PROBES, Audit, audit_federation, audit_job

__all__ = [
    "PROBES",
    "Audit",
    "Change",
    "Control",
    "Finding",
    "Marks",
    "audit_federation",
    "audit_job",
]
