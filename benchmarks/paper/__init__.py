"""The experiments of the papers by name; each puts a paper's own figures beside ours."""

from benchmarks.paper.registry import PAPERS, describe_settings, run_paper

__all__ = ["PAPERS", "describe_settings", "run_paper"]
