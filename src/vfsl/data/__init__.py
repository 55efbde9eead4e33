"""Party tables: reading, checking, encoding, splitting, making up, and the public data sets."""

from vfsl.data.catalog import available, load
from vfsl.data.columns import Kind
from vfsl.data.dataset import Dataset, Images
from vfsl.data.files import FILE_ROW, column_names, read_ids, read_table, write_table
from vfsl.data.findings import Finding, inspect
from vfsl.data.labels import check_labels
from vfsl.data.preprocess import Encoded, Encoder
from vfsl.data.split import Split, halves, split_vertically
from vfsl.data.synthetic import Synthetic, make_parties
from vfsl.data.table import PartyTable

__all__ = [
    "FILE_ROW",
    "Dataset",
    "Encoded",
    "Encoder",
    "Finding",
    "Images",
    "Kind",
    "PartyTable",
    "Split",
    "Synthetic",
    "available",
    "check_labels",
    "column_names",
    "halves",
    "inspect",
    "load",
    "make_parties",
    "read_ids",
    "read_table",
    "split_vertically",
    "write_table",
]
