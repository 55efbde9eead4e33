"""Pages and tables from run records."""

from vfsl.federation import register_renderer
from vfsl.report.page import render, write_page
from vfsl.report.summary import readable_bytes, summarise

register_renderer(".html", write_page)

__all__ = ["readable_bytes", "render", "summarise", "write_page"]
