"""What a job asks of a party, and the party's answers."""

import tomllib

import pytest

from vfsl.deploy.config import PartyFile
from vfsl.deploy.consent import agreement, asks_of, refusals
from vfsl.deploy.job import job_hash, load_shared_job, opened_job, sealed_text
from vfsl.errors import ConfigError, ProtocolError
from vfsl.job.schema import SharedJob, check

ALIGN = {"do": "align", "parties": ["B", "C"]}


def job(*steps, **run):
    content = {"run": run, "parties": ["A", "B", "C"], "steps": [ALIGN, *steps]}
    return check(content, SharedJob)


def party(name="B", **allow):
    given = {"submitters": ["C"], "steps": ["align", "train", "pu"]} | allow
    content = {
        "party": name,
        "role": "key holder" if name == "K" else "data",
        "peers": {peer: "00" for peer in "ABCK" if peer != name},
        "allow": given,
    }
    if name != "K":
        content["table"] = {"path": "t.csv", "id": "id", "columns": ["x"], "label": "y"}
    return PartyFile.model_validate(content)


def train(model="linear", **more):
    return {"do": "train", "model": model, "label": ["C", "y"], **more}


def pu(**more):
    return {"do": "pu", "positives": "A", "label_holder": "C", **more}


def complete(**more):
    return {"do": "complete", "given": "C", "missing": "B", **more}


@pytest.mark.parametrize(
    ("step", "names"),
    [
        (ALIGN, []),
        (train("linear"), ["predictions"]),
        (train("linear", solver="one-shot"), ["cross-gram", "predictions"]),
        (train("linear", protocol="rounds"), ["gradients", "predictions"]),
        (train("logistic"), ["predictions"]),
        (
            train("logistic", protocol="rounds"),
            ["gradients", "training scores", "predictions"],
        ),
        (train("logistic", protocol="rounds", refine=0), ["gradients", "predictions"]),
        (
            train("logistic", protocol="rounds", look_noise=0.0),
            ["gradients", "training scores", "exact training scores", "predictions"],
        ),
        (train("logistic", label_noise=0.0), ["predictions"]),
        (
            train("logistic", weights="own", label_noise=0.0),
            ["own weights", "rare labels", "predictions"],
        ),
        (
            train("linear", weights="own", rare_rows_per_column=1.0),
            ["own weights", "rare labels", "predictions"],
        ),
        (
            train("linear", weights="own", rare_rows_per_column=8.0),
            ["own weights", "predictions"],
        ),
        (train("xgb"), ["tree partitions", "predictions"]),
        (pu(), ["reliable positives"]),
        (pu(base="rf"), ["tree partitions", "reliable positives"]),
        (pu(preset="paper"), ["row lists", "reliable positives"]),
        (pu(preset="paper", row_lists="hidden"), ["reliable positives"]),
        (pu(consent=["B", "C"]), ["strangers", "reliable positives"]),
        (
            train("risa", protect="none", accept=["label-disclosure"]),
            ["training labels", "evidence", "predictions"],
        ),
        (
            train("risa", protect="none", label_epsilon=2.0),
            ["noisy labels", "evidence", "predictions"],
        ),
        (train("risa"), ["evidence", "predictions"]),
        (train("risa", protect="both"), ["noisy evidence", "predictions"]),
        (complete(), ["row differences", "completed columns"]),
        (
            complete(label="y"),
            ["row differences", "completed columns", "tree partitions", "row confidence"],
        ),
        (complete(low="vfgain"), ["embeddings", "row differences", "completed columns"]),
        (
            complete(low={"ensemble": ["mean", {"method": "vfgain", "epochs": 2}]}),
            ["embeddings", "row differences", "completed columns"],
        ),
    ],
)
def test_what_a_step_asks_for(step, names):
    asked = asks_of(job(step).steps[-1])
    assert [name for _, name in asked] == names


def test_a_scheme_that_encrypts_means_rounds():
    names = [name for _, name in asks_of(job(train("linear")).steps[-1], "bfv")]
    assert names == ["gradients", "predictions"]


ROUNDS = train("logistic", protocol="rounds")


def test_a_party_that_allows_everything_asked_agrees():
    assert refusals(party(outputs=["predictions"]), job(train("logistic")), "C") == []
    mine = party(disclosures=["training scores", "gradients"], outputs=["predictions"])
    assert refusals(mine, job(ROUNDS), "C") == []


def test_each_missing_permission_is_a_sentence_that_names_it():
    said = refusals(party(disclosures=["gradients"]), job(ROUNDS), "C")
    assert len(said) == 2
    assert said[0].startswith("Step 2: 'B' has not allowed the disclosure 'training scores'")
    assert "'predictions'" in said[1]


def test_parties_whose_columns_are_not_used_need_not_allow_their_use():
    assert refusals(party("K"), job(train("xgb")), "C") == []
    assert refusals(party("A"), job(train("xgb")), "C") == []
    assert refusals(party("B"), job(train("xgb")), "C") != []


@pytest.mark.parametrize(
    ("allow", "asked", "leader", "words"),
    [
        ({"submitters": []}, job(), "C", "takes no jobs of 'C'"),
        ({"steps": ["align"]}, job(pu()), "C", "does not take part in 'pu'"),
        ({"models": ["xgb"]}, job(train()), "C", "does not train 'linear'"),
        ({}, job(security=112), "C", "128-bit security; the job has 112"),
        ({}, job(seconds=7200.0), "C", "waits 3600 s"),
        ({}, job(key_holder="H"), "C", "no pinned key of 'H'"),
    ],
)
def test_other_reasons_to_refuse(allow, asked, leader, words):
    allow = {"outputs": ["predictions", "reliable positives"]} | allow
    (said,) = refusals(party(**allow), asked, leader)
    assert words in said


def test_a_label_must_be_released_by_its_holder():
    asked = job({**train(), "label": ["C", "salary"]})
    mine = party("C", outputs=["predictions"])
    assert any("has not released the label" in text for text in refusals(mine, asked, "C"))


def test_roles_of_keys_must_fit():
    mine = party("K")
    content = {"run": {"key_holder": "A"}, "parties": ["K", "B", "C"], "steps": [ALIGN]}
    asked = check(content, SharedJob)
    assert any("set up as key holder" in text for text in refusals(mine, asked, "C"))


def test_completed_rows_and_evaluations_ask_for_what_they_show():
    asked = check(
        {
            "parties": ["B", "C"],
            "test": {"share": 0.3},
            "steps": [ALIGN, complete(), train("xgb", rows="completed"), {"do": "evaluate"}],
        },
        SharedJob,
    )
    names = [[name for _, name in asks_of(step)] for step in asked.steps[2:]]
    assert names == [["tree partitions", "row confidence", "predictions"], ["predictions"]]


def test_the_ledger_says_what_was_agreed_to():
    (scores, gradients, predictions) = agreement(job(ROUNDS))
    assert scores.startswith("training scores: the label holder sees")
    assert gradients.startswith("gradients: in every round")
    assert predictions.startswith("predictions: ")


def test_a_job_of_one_machine_is_a_job_of_a_deployment(tmp_path):
    text = """
    [run]
    seed = 3
    channel = "processes"
    [parties.A]
    table = "SECRET-A.csv"
    id = "id"
    [parties.B]
    table = "SECRET-B.csv"
    id = "id"
    [[steps]]
    do = "align"
    """
    (tmp_path / "job.toml").write_text(text)
    loaded = load_shared_job(tmp_path / "job.toml")
    assert loaded.parties == ["A", "B"]
    assert loaded.run.seed == 3
    assert "SECRET" not in sealed_text(loaded)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ('scheme = "plain"', "encrypts nothing and is refused in deployments"),
        ('scheme = "rot13"', "scheme must be"),
        ("seconds = 0", "seconds must be"),
        ('key_holder = "A"', "must have no table"),
    ],
)
def test_settings_that_a_deployment_refuses(tmp_path, change, words):
    text = f'parties = ["A", "B"]\n[run]\n{change}\n[[steps]]\ndo = "align"\n'
    (tmp_path / "job.toml").write_text(text)
    with pytest.raises(ConfigError, match=words):
        load_shared_job(tmp_path / "job.toml")


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ('[[steps]]\ndo = "train"\nmodel = "linear"\nlabel = ["A", "y"]', "must be an align step"),
        ('[[steps]]\ndo = "align"\nparties = ["A", "Z"]', "'Z'"),
        (
            '[[steps]]\ndo = "align"\n[[steps]]\ndo = "pu"\npositives = "A"\nlabel_holder = "B"',
            "without the positive holder",
        ),
        ('[[steps]]\ndo = "align"\n[[steps]]\ndo = "evaluate"', "add a .test. section"),
        (
            '[[steps]]\ndo = "align"\n[[steps]]\ndo = "train"\nmodel = "risa"\nlabel = ["A", "y"]\n'
            'protect = "none"',
            "accept must be .'label-disclosure'.",
        ),
        (
            '[[steps]]\ndo = "align"\n[[steps]]\ndo = "complete"\ngiven = "A"\nmissing = "A"',
            "another party than given",
        ),
        ('[[steps]]\ndo = "align"\n[[steps]]\ndo = "complete"\ngiven = "A"', "missing is missing"),
    ],
)
def test_steps_that_do_not_fit_are_refused(tmp_path, steps, words):
    (tmp_path / "job.toml").write_text(f'parties = ["A", "B"]\n{steps}\n')
    with pytest.raises(ConfigError, match=words):
        load_shared_job(tmp_path / "job.toml")


def test_a_job_on_the_way_is_the_announced_one_or_nothing():
    text = sealed_text(job(train("xgb", n_estimators=3)))
    assert opened_job(text, job_hash(text), "C") == job(train("xgb", n_estimators=3))
    other = text.replace("3", "4")
    assert job_hash(sealed_text(job())) != job_hash(sealed_text(job()))  # salted
    with pytest.raises(ProtocolError, match="not the announced one") as caught:
        opened_job(other, job_hash(text), "C")
    assert caught.value.party == "C"
    for unread in ("{}", '{"job": {"run": 1}}', "no JSON"):
        assert "cannot read the job of 'C'" in opened_job(unread, job_hash(unread), "C")


def test_the_example_party_file_parses(kit):
    for name in "ABCK":
        text = kit.party_text(name)
        assert PartyFile.model_validate(tomllib.loads(text)).party == name
