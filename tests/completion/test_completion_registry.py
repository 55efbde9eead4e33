"""Methods by name: ours, those of other packages, and life without PyTorch."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import vfsl.completion
from vfsl.completion import GeneratorCompleter, available, completer, facts_of, find
from vfsl.completion.ensembles import Ensemble
from vfsl.completion.registry import METHODS, local_methods
from vfsl.errors import ConfigError

# A whole package of somebody else: two methods in one file, and a page that names them.
TOYS = """
import numpy as np
import pandas as pd

from vfsl.completion import Facts
from vfsl.completion.base import Filling, as_table, columns_to_fill
from vfsl.data import Encoder


class Zeros:
    def fit(self, table, rng):
        self.encoder_ = Encoder(missing="keep").fit(as_table(table, "Zeros"))
        return self

    def complete(self, table, rng):
        asked = as_table(table, "Zeros")
        filling = Filling(asked)
        for code in columns_to_fill(self.encoder_, asked):
            filling.fill_number(code, np.zeros(len(asked)), 1.0)
        return filling.finish()


class Copies:
    facts = Facts(kind="generator")

    def fit(self, table, rng):
        self.table = table.frame
        return self

    def sample(self, n, rng, given=None):
        made = self.table.iloc[rng.integers(0, len(self.table), n)].reset_index(drop=True)
        return made if given is None else given.combine_first(made)
"""


@pytest.fixture
def toys(install):
    install("toy_methods", TOYS, "vfsl.completers", zeros="Zeros", copies="Copies")


def rng(seed=0):
    return np.random.default_rng(seed)


def holes(rows=40):
    frame = pd.DataFrame({"x": np.linspace(-1, 1, rows), "y": np.linspace(-4, 4, rows)})
    frame.loc[30:, "y"] = np.nan
    return frame


def test_a_method_of_another_package_is_listed_without_an_import(toys):
    assert available()[-2:] == ["copies", "zeros"]
    assert local_methods()[-2:] == ["copies", "zeros"]
    assert "toy_methods" not in sys.modules
    assert available("completer")[-1] == "zeros"
    assert available("generator")[-1] == "copies"


def test_a_method_of_another_package_completes_a_table(toys):
    done = completer("zeros").fit(holes(), rng()).complete(holes(), rng())
    assert (done.values["y"].iloc[30:] == 0.0).all()
    assert done.values["y"].iloc[:30].tolist() == holes()["y"].iloc[:30].tolist()
    both = Ensemble(["zeros", "mean"]).fit(holes(), rng()).complete(holes(), rng())
    assert both.values["y"].notna().all()


def test_a_generator_of_another_package_completes_by_its_samples(toys):
    made = completer("copies", draws=3)
    assert isinstance(made, GeneratorCompleter)
    done = made.fit(holes(), rng()).complete(holes(), rng())
    assert done.values["y"].notna().all()
    assert done.values["x"].tolist() == holes()["x"].tolist()


def test_every_registered_name_leads_to_its_class():
    assert available()[:2] == ["mean", "hot-deck"]
    assert set(available("generator")) == {"ctgan", "tablegan", "ctabgan", "vae", "tvae", "tabddpm"}
    assert available("protocol") == ["vfgain"]
    for name, (path, _) in METHODS.items():
        assert find(name).__name__ == path.partition(":")[2]
        assert getattr(vfsl.completion, find(name).__name__) is find(name)


def test_every_method_is_what_its_facts_say():
    for name, (_, facts) in METHODS.items():
        made = find(name)
        assert facts_of(name) is facts
        assert facts.saved == hasattr(made, "restore")
        assert hasattr(made, "sample") == (facts.kind == "generator")
        assert facts.needs_torch == (name not in ("mean", "hot-deck"))
        local = facts.kind != "protocol"
        assert facts.checkpoints == (hasattr(made, "checkpoint") or not local)
        assert (name in local_methods()) == local


def test_unknown_names_and_settings():
    with pytest.raises(ConfigError, match="did you mean 'ctgan'"):
        find("ctgam")
    with pytest.raises(ConfigError, match="cannot be made with these settings"):
        completer("mean", colour="red")
    with pytest.raises(ConfigError, match="runs between parties"):
        completer("vfgain")
    with pytest.raises(ConfigError, match="kind parameter of available"):
        available("gan")
    assert completer("tvae", epochs=3, draws=7).draws == 7
    assert completer("tvae", epochs=3).generator.epochs == 3


def test_without_pytorch_the_rest_works_and_one_sentence_says_why():
    code = """
import sys
sys.modules["torch"] = None
import vfsl, vfsl.completion
from vfsl.errors import ConfigError
assert "ctgan" in vfsl.completion.available()
vfsl.completion.completer("mean")
try:
    vfsl.completion.completer("ctgan")
except ConfigError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == (
        "Method 'ctgan' needs PyTorch, which is not installed; install it with "
        "pip install 'vfsl[deep]'."
    )


def test_importing_completion_does_not_load_pytorch():
    code = "import sys, vfsl.completion; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
