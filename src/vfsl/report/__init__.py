"""Pages and tables from run records."""

from vfsl.report.page import render, write_page
from vfsl.report.summary import readable_bytes, summarise

__all__ = ["readable_bytes", "render", "summarise", "write_page"]
