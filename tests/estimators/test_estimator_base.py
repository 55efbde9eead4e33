"""What all estimators share: the saved form of a share."""

import json

import pytest

from vfsl.parts import ModelShare


def test_a_share_comes_back_from_its_saved_form():
    share = ModelShare(
        "B", "linear", {"weights": [[0.5]]}, ({"loss": 0.25},), "converged", ("rare",)
    )
    assert ModelShare.from_dict(json.loads(json.dumps(share.to_dict()))) == share


def test_a_share_kept_without_its_rounds_still_comes_back():
    content = ModelShare("B", "linear", {"weights": []}).to_dict()
    del content["rounds"], content["notes"]
    assert ModelShare.from_dict(content) == ModelShare("B", "linear", {"weights": []})


@pytest.mark.parametrize("content", [{}, [], {"party": "B"}])
def test_what_is_no_share_is_refused(content):
    with pytest.raises(TypeError):
        ModelShare.from_dict(content)
