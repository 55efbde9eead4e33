"""The command line: the only package that prints."""

from vfsl.cli.main import app, main

__all__ = ["app", "main"]
