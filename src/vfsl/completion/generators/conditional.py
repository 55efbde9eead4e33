"""What GANs with a condition vector share: how they are asked for rows, and what is saved."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vfsl.completion.deep import Conditions, DeepGenerator, by_parts
from vfsl.completion.generators.conditioning import Conditioner, choose_condition
from vfsl.completion.generators.matching import best_of
from vfsl.completion.layers import normal
from vfsl.completion.mixed import Span
from vfsl.errors import ConfigError
from vfsl.values import Array


@dataclass(kw_only=True)
class ConditionalGAN(DeepGenerator):
    """A GAN whose rows are made under a condition: one choice that each of them shall have."""

    latent: int = 128
    temperature: float = 0.2
    modes: int = 10
    matches: int = 20

    def _check(self) -> None:
        super()._check()
        self._at_least(latent=1, temperature=1e-3, matches=1)
        if self.patience is not None:
            raise ConfigError(
                f"The patience parameter of {type(self).__name__} must be None: losses of a GAN "
                f"do not say when it is good. Got {self.patience!r} instead."
            )

    @abstractmethod
    def _asked_spans(self) -> Sequence[Span]:
        """The choices that conditions may ask for."""

    @abstractmethod
    def _logits(self, inputs: Tensor) -> Tensor:
        """The generator's rows for noise with conditions beside it."""

    def _conditioner(self, counts: Sequence[Array]) -> Conditioner:
        return Conditioner(self._asked_spans(), counts)

    def _make(self, n: int, given: Conditions | None, source: torch.Generator) -> Array:
        if given is None:
            return self._generate(n, None, source)
        encoded, spans = given.encoded, self.conditioner_.spans
        places = {name: place for place, name in enumerate(self.encoder_.kinds)}
        which, choice = choose_condition(encoded.matrix, encoded.observed, spans, places)

        def draw(rows: Array) -> Array:
            return self._generate(len(rows), (which[rows], choice[rows]), source)

        return best_of(self.encoder_, given, self.matches, draw)

    def _generate(
        self, n: int, wanted: tuple[Array, Array] | None, source: torch.Generator
    ) -> Array:
        noise = normal((n, self.latent), source, self.device)
        if self.conditioner_.spans:
            vector = self.conditioner_.ask(n, source, as_found=True).vector
            if wanted is not None:
                named = np.flatnonzero(wanted[0] >= 0)
                asked = self.conditioner_.ask_for(wanted[1][named], wanted[0][named])
                vector[named] = asked.vector
            noise = torch.cat([noise, vector.to(self.device)], dim=1)
        logits = by_parts(self._logits, noise)
        made = self.layout_.tanh_gumbel(logits, self.temperature, source)
        return self.layout_.back(made)

    def state(self) -> dict[str, Any]:
        return {**super().state(), "counts": self.conditioner_.to_list()}

    def restore(self, state: Mapping[str, Any], arrays: Mapping[str, Array], where: str) -> None:
        super().restore(state, arrays, where)
        self.conditioner_ = self._conditioner([np.asarray(count) for count in state["counts"]])
