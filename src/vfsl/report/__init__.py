"""Pages and tables from run records."""

from vfsl.report.page import render, write_page
from vfsl.report.summary import summarise
from vfsl.report.words import readable_bytes

__all__ = ["readable_bytes", "render", "summarise", "write_page"]
