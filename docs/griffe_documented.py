"""For the site: docstrings and signatures of classes whose parameters are declared by `param`.

mkdocstrings reads source files, but `vfsl.params.documented` completes a docstring when its class
is made. So these docstrings come from the classes themselves, and a default is what `param` names.
"""

import griffe


class CompletedDocstrings(griffe.Extension):
    """Reads the finished docstrings of documented classes."""

    def on_instance(self, *, obj, **kwargs):
        """Called for every object that griffe has found in a source file."""
        if obj.is_class and any(str(one.value) == "documented" for one in obj.decorators):
            self._complete(obj)
        elif obj.is_attribute and str(obj.value).startswith("param("):
            obj.value = obj.value.arguments[0]

    def _complete(self, found):
        try:
            made = griffe.dynamic_import(found.path)
        except ImportError:  # without PyTorch the page shows what the source says
            return
        if found.docstring is None:
            found.docstring = griffe.Docstring(made.__doc__, parent=found)
        else:
            found.docstring.value = made.__doc__
