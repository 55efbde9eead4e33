"""The command line: the only package that prints.

Modules here load nothing heavy; commands import what they need when they are called, so that
``vfsl --help`` answers at once.
"""

from vfsl.cli.main import app, main

__all__ = ["app", "main"]
