"""What people write for a deployment: project.toml, known to all, and party.toml, one's own.

The project names the parties and the relay. A party file says where its table is, which columns may
be used, whose keys it has pinned, and what it allows; it never leaves its party.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self, TypeVar, get_args

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator

from vfsl.align import Limits
from vfsl.data import PartyTable, check_labels
from vfsl.data.checks import PARTY_NAME, is_party_name
from vfsl.data.sources import locate_table
from vfsl.errors import ConfigError, StoreError
from vfsl.job.mistakes import Location, sentence
from vfsl.job.tables import IdColumns, LabelColumn, Strict, Using
from vfsl.store import write_text

PARTY_FILE = "party.toml"
SEAL_FILE = "seal.key"
KIT_FOLDER = "kit"
FOLDER_VARIABLE = "VFSL_PARTY_FOLDER"  # tells the processes of a run whose they are
SUBMIT_FOLDER = "submit"
RELAY_NAME = "relay"  # in commands; the engine knows the relay by its host name


Settings = TypeVar("Settings", bound=BaseModel)


class Address(Strict):
    """Where the relay listens."""

    host: str = Field(min_length=1)
    port: int = Field(ge=1, le=65_535)
    admin_port: int = Field(ge=1, le=65_535)


class Project(Strict):
    """Who takes part; the same file at all parties."""

    name: str
    relay: Address
    parties: list[str] = Field(min_length=2)
    key_holder: str = "K"
    submitters: list[str] = Field(min_length=1)
    authority: str = ""  # fingerprint of the authority's certificate, compared out of band

    @model_validator(mode="after")
    def _names_fit(self) -> Self:
        everyone = [*self.parties, self.key_holder]
        for name in [self.name, *everyone]:
            if not is_party_name(name) or name == RELAY_NAME:
                raise ValueError(f"the name {name!r} must be {PARTY_NAME}; and not {RELAY_NAME!r}")
        if len(set(everyone)) != len(everyone):
            raise ValueError("every party and the key holder need a name of their own")
        for name in self.submitters:
            if name not in self.parties:
                raise ValueError(f"submitters names {name!r}, which is not among the parties")
        return self

    @property
    def everyone(self) -> tuple[str, ...]:
        return (*self.parties, self.key_holder)

    def to_toml(self) -> str:
        """The file's content."""
        lines = [
            "# Known to all parties. Compare the fingerprint by telephone, not by mail.",
            f"name = {_quoted(self.name)}",
            f"parties = {_quoted(self.parties)}",
            f"key_holder = {_quoted(self.key_holder)}",
            f"submitters = {_quoted(self.submitters)}",
            f"authority = {_quoted(self.authority)}",
            "",
            "[relay]",
            *(f"{name} = {_quoted(value)}" for name, value in self.relay.model_dump().items()),
        ]
        return "\n".join(lines) + "\n"


class TableSection(Using):
    """A party's table, how it is read, and which of its columns a job may use."""

    path: str
    id: IdColumns
    columns: list[str] = Field(min_length=1)
    label: LabelColumn = None


class LimitSection(Strict):
    """How much a peer may ask and see, and how long a run may wait for one message."""

    asked: int | None = Field(default=None, ge=0)
    numbers: float = Field(default=0.6, ge=0, strict=False)
    epsilon: float = Field(default=math.inf, gt=0, strict=False)
    days: float = Field(default=30.0, gt=0)
    minimum: int = Field(default=50, ge=0)
    small_change: int = Field(default=20, ge=0)
    seconds: float = Field(default=3600.0, gt=0)


class AllowSection(Strict):
    """What this party agrees to; a job that asks for more is refused before anything is sent."""

    submitters: list[str] = Field(default=[])
    steps: list[str] = Field(default=["align", "train"])
    models: list[str] = Field(default=[])
    disclosures: list[str] = Field(default=[])
    outputs: list[str] = Field(default=[])
    security: Literal[128, 112] = 128

    @field_validator("disclosures", "outputs")
    @classmethod
    def _known(cls, names: list[str]) -> list[str]:
        for name in names:
            if name not in DISCLOSURES | OUTPUTS:
                known = ", ".join([*DISCLOSURES, *OUTPUTS])
                raise ValueError(f"{name!r} is not something to allow; known are {known}")
        return names


# What a job may reveal beyond the defaults of its protocols; each needs the consent of all.
DISCLOSURES = {
    "training scores": "the label holder sees the total score of every training row, with noise",
    "exact training scores": "the label holder sees these scores with less noise, or none",
    "gradients": "in every round of a linear model each party sees its own gradients, sums over "
    "rows of its columns by the other's labels",
    "own weights": "each party learns the weights of its own columns in a linear model, which tell "
    "about the other's labels and columns",
    "label rates": "each feature holder learns, for bins of its own columns with at least ten rows "
    "of each class, how many rows are positive, in fours; the label holder the information value "
    "of each nameless column (a scorecard)",
    "correlations": "the label holder learns how the nameless columns of all parties correlate "
    "with each other and with the label, rounded (to select columns of a scorecard)",
    "rare labels": "feature holders could work out which rows have a rare label",
    "tree partitions": "the label holder sees which way training rows go at those splits of the "
    "others that they come to, and can order most of these rows by the others' columns; under "
    "encryption, and where sums of candidates are asked for, the others see how rows fall apart, "
    "and can guess labels once they know a few",
    "cross-gram": "one party sees the products of its own columns with the other's",
    "associations": "a party learns how strongly each of its columns goes with another's, rounded, "
    "and whether that is above a threshold or what a test of it needs; "
    "under encryption the other sees it too, without names",
    "row differences": "a party sees how unlike its common rows each row of the other is",
    "repeated predictions": "a party sees a prediction per round for rows that it does not have",
    "row confidence": "the label holder learns, in tenths, how sure its completed rows are",
    "training labels": "the other parties can read the labels of most rows that they train on",
    "noisy labels": "the other parties can read these labels as randomised response left them",
    "evidence": "the label holder sees, row by row, what each party's columns say of the classes",
    "noisy evidence": "the label holder sees the same within limits and with the party's noise",
    "embeddings": "a party sees learned vectors of the other's rows, and the other how its loss "
    "changes with them: each can guess the other's columns as far as they go together",
    "row lists": "feature holders learn who the known positives are",
    "strangers": "the positive holder receives ids that it did not know",
}
OUTPUTS = {
    "predictions": "the label holder receives a prediction for every common row",
    "reliable positives": "the label holder receives a score for every unlabelled common row",
    "completed columns": "a party receives a prediction per column for rows that it does not have, "
    "and a held-out one for common rows",
}


class PartyFile(Strict):
    """One party's own settings."""

    party: str
    role: Literal["data", "key holder", "relay"] = "data"
    table: TableSection | None = None
    peers: dict[str, str] = Field(default={})
    limits: LimitSection = LimitSection()
    allow: AllowSection = AllowSection()

    @model_validator(mode="after")
    def _fits_the_role(self) -> Self:
        if (self.table is not None) != (self.role == "data"):
            raise ValueError(
                f"a party with role = {self.role!r} must have no table"
                if self.table is not None
                else "a data party needs a [table] section"
            )
        return self

    def pins(self) -> dict[str, X25519PublicKey]:
        """The pinned keys of the peers."""
        return {peer: _public_key(peer, text) for peer, text in self.peers.items()}

    def alignment_limits(self) -> Limits:
        return Limits(**self.limits.model_dump(exclude={"seconds", "numbers", "epsilon"}))

    def read_table(self, folder: Path) -> PartyTable:
        """The table with its allowed columns only; others never enter the process of a run."""
        if self.table is None:
            raise ConfigError(f"Party {self.party!r} has no [table] section in {PARTY_FILE}.")
        section = self.table
        table = section.read(
            locate_table(folder, section.path), self.party, section.id, section.label
        )
        wanted = {*section.columns, *([section.label] if section.label else [])}
        for column in wanted:
            table.column(column)
        table = table.without([column for column in table.columns if column not in wanted])
        table = table.treat_missing(section.missing)
        check_labels({self.party: table}, ask=_in_party_file)
        return table


def _in_party_file(party: str, column: str) -> str:
    return f"write label = {_quoted(column)} under [table] in {PARTY_FILE}, or label = false"


def load_project(path: Path) -> Project:
    """Read and check project.toml."""
    return checked(Project, read_toml(path), path)


def load_party(folder: Path) -> PartyFile:
    """Read and check the party file in a party's folder."""
    path = folder / PARTY_FILE
    return checked(PartyFile, read_toml(path), path)


def seal_key(folder: Path) -> X25519PrivateKey:
    """The party's own key, whose public half its peers have pinned."""
    path = folder / SEAL_FILE
    try:
        return X25519PrivateKey.from_private_bytes(bytes.fromhex(path.read_text().strip()))
    except FileNotFoundError:
        raise StoreError(f"{path} does not exist; make it by: vfsl deploy request.") from None
    except ValueError:
        raise StoreError(f"{path} is damaged: it is not a key.") from None


def make_seal_key(folder: Path) -> str:
    """Make the party's key in its own folder; returns the public half, to be pinned by peers."""
    key = X25519PrivateKey.generate()
    write_text(folder / SEAL_FILE, key.private_bytes_raw().hex() + "\n")
    (folder / SEAL_FILE).chmod(0o600)
    return key.public_key().public_bytes_raw().hex()


def party_template(project: Project, name: str, role: str) -> str:
    """A first party.toml, to be completed by the party."""
    head = [f"party = {_quoted(name)}", f"role = {_quoted(role)}", ""]
    if role == "relay":
        return "\n".join(head[:2]) + "\n"
    peers = [other for other in project.everyone if other != name]
    table = [
        "[table]",
        'path = "table.csv"          # beside this file, or an absolute path',
        'id = "id"',
        'columns = ["CHANGE-ME"]     # a job never sees any other column',
        '# label = "column"          # never a feature; false: no column is a label',
        "",
    ]
    rest = [
        "[peers]                     # their pins, each read out to you by a person there",
        *(f'{peer} = "PIN-OF-{peer}"' for peer in peers),
        "",
        "[limits]",
        "# asked = 100000            # ids that a peer may ask in 30 days; else 3 × own list",
        "numbers = 0.6               # exact numbers that a peer may ever see, of rows × columns",
        "minimum = 50                # fewest common rows",
        "seconds = 3600.0            # longest wait for one message",
        "",
        "[allow]",
        f"submitters = {_quoted(project.submitters)}",
        'steps = ["align", "train"]',
        "models = []                 # none named: all",
        "disclosures = []            # " + ", ".join(DISCLOSURES),
        "outputs = []                # " + ", ".join(OUTPUTS),
    ]
    return "\n".join(head + (table if role == "data" else []) + rest) + "\n"


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path} does not exist.") from None
    except IsADirectoryError:
        raise ConfigError(f"{path} is a folder.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}.") from None


def checked(kind: type[Settings], content: Mapping[str, Any], path: Path | None = None) -> Settings:
    """Settings from plain values; a mistake is one sentence that names the field."""
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        where = "" if path is None else f"In {path}: "
        words = sentence(error, partial(_known_fields, kind))
        raise ConfigError(where + words) from None


def _known_fields(kind: type[BaseModel], location: Location) -> list[str]:
    """The fields of the section in which an unknown one was found."""
    for name in location[:-1]:
        found = kind.model_fields[str(name)].annotation
        options = [one for one in (found, *get_args(found)) if isinstance(one, type)]
        kind = next((one for one in options if issubclass(one, BaseModel)), kind)
    return list(kind.model_fields)


def _public_key(peer: str, text: str) -> X25519PublicKey:
    try:
        return X25519PublicKey.from_public_bytes(bytes.fromhex(text))
    except ValueError:
        raise ConfigError(
            f"The pin of {peer!r} in {PARTY_FILE} must be 64 hexadecimal digits. "
            f"Got {text!r:.80} instead."
        ) from None


def _quoted(value: str | int | list[str]) -> str:
    """A string, number or list of strings as TOML, which writes them as JSON does."""
    return json.dumps(value, ensure_ascii=False)
