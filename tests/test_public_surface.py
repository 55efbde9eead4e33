"""The public names, pinned: a change here is a change for users."""

import vfsl
import vfsl.errors


def test_public_names():
    assert sorted(vfsl.__all__) == [
        "FedPSG",
        "Federation",
        "RISA",
        "VFPU",
        "__version__",
        "completion",
        "data",
        "datasets",
        "estimators",
        "evidence",
        "model_selection",
        "pu",
        "read_table",
        "report",
        "show_progress",
        "simulate",
    ]
    assert all(getattr(vfsl, name) is not None for name in vfsl.__all__)
    assert sorted(vfsl.estimators.__all__) == [
        "Answer",
        "Ask",
        "Association",
        "ESTIMATORS",
        "Estimator",
        "GBDT",
        "LGB",
        "LinearRegression",
        "LogisticRegression",
        "ModelShare",
        "Part",
        "RandomForest",
        "Roles",
        "Scorecard",
        "XGB",
        "load_model",
        "load_share",
        "save_model",
        "save_page",
        "save_share",
    ]


def test_public_names_of_completion():
    assert sorted(vfsl.completion.__all__) == [
        "CTABGAN",
        "CTGAN",
        "Completed",
        "Completer",
        "Efficiency",
        "Ensemble",
        "Facts",
        "GAIN",
        "Generator",
        "GeneratorCompleter",
        "HotDeck",
        "MeanMode",
        "MixedEncoder",
        "NearestRecords",
        "Quality",
        "TVAE",
        "TabDDPM",
        "TableGAN",
        "VAE",
        "VFGAIN",
        "VGAIN",
        "available",
        "completer",
        "facts_of",
        "find",
        "learning_efficiency",
        "load",
        "nearest_records",
        "quality",
        "save",
    ]
    assert vfsl.completion.Ensemble(["mean"]).how == "stacking"


def test_every_error_is_in_the_drawn_tree():
    drawn = vfsl.errors.__doc__
    classes = [c for c in vars(vfsl.errors).values() if isinstance(c, type)]
    assert len(classes) > 10
    for error in classes:
        assert issubclass(error, vfsl.errors.VfslError)
        assert error.__name__ in drawn
