"""Pages and tables from run records."""

from vfsl.report.page import render, summarise, write_page
from vfsl.report.words import readable_bytes

__all__ = ["readable_bytes", "render", "summarise", "write_page"]
