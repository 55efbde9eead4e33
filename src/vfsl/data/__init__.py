"""Party tables: reading, checking, encoding, splitting and making up."""

from vfsl.data.columns import Kind
from vfsl.data.encoder import Encoded, Encoder
from vfsl.data.files import FILE_ROW, column_names, read_ids, read_table
from vfsl.data.findings import Finding, check_labels, inspect
from vfsl.data.split import Split, halves, split_vertically
from vfsl.data.synthetic import Synthetic, make_parties
from vfsl.data.table import PartyTable
from vfsl.data.writing import write_table

__all__ = [
    "FILE_ROW",
    "Encoded",
    "Encoder",
    "Finding",
    "Kind",
    "PartyTable",
    "Split",
    "Synthetic",
    "check_labels",
    "column_names",
    "halves",
    "inspect",
    "make_parties",
    "read_ids",
    "read_table",
    "split_vertically",
    "write_table",
]
