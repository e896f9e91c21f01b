"""Requests that end, go back or grow within a burst, which is several frames of one launch."""

from collections.abc import Callable, Mapping
from typing import Any

from app.engine.utterance import UtteranceSpec
from models.valle import Valle
from samplers.knobs.params import SamplingParams
from tests.app.engine.ar.requests import request
from tests.samplers.ar.rows import GUIDED, STUCK

WHOLE: dict[str, Any] = {"trace": False, "kept": None, "context": ()}
ALIGNED: dict[str, Any] = {"alignment_stop_frames": 3, "backtrack_repeat_frames": 2}


def knobs(**chosen: Any) -> SamplingParams:
    return SamplingParams.model_validate({"seed": 0, **chosen})


def stops(model: Valle) -> list[UtteranceSpec]:
    """End at each place of a burst, the first frame and none among them."""
    likely = {model.config.stop_token: 50.0}
    return [
        request(model, number, params=knobs(logit_bias=likely, min_frames=number), **WHOLE)
        for number in range(7)
    ]


def limits(model: Valle) -> list[UtteranceSpec]:
    """Are cut at each place of a burst."""
    params = knobs(min_frames=100, **GUIDED)
    return [request(model, n, params=params, **WHOLE, max_frames=n) for n in range(1, 8)]


def borders(model: Valle) -> list[UtteranceSpec]:
    """Grow into a second page at each place of a burst."""
    params = knobs(min_frames=100, **GUIDED)
    ids = [1, *range(10, 60), 2]
    return [
        request(model, 4, params=params, phoneme_ids=[*ids[: 40 - n], 2], max_frames=40, **WHOLE)
        for n in range(5)
    ]


def rewinds(model: Valle) -> list[UtteranceSpec]:
    """Go back, many times, each from elsewhere."""
    return [request(model, n, params=knobs(**STUCK), max_frames=60, **WHOLE) for n in range(10)]


def alignments(model: Valle) -> list[UtteranceSpec]:
    """End, or go back, where the alignment says so."""
    return [
        request(model, n, params=knobs(**ALIGNED, **more), **WHOLE)
        for n in range(4)
        for more in ({"temperature": 1.1}, {**GUIDED, **STUCK})
    ]


def repeats(model: Valle) -> list[UtteranceSpec]:
    """Say words again, where any attention to what was before counts."""
    params = {"backtrack": True, "backtrack_repeat_frames": 2, "min_frames": 60}
    return [
        request(model, n, params=knobs(**params | more), max_frames=60, **WHOLE)
        for n in range(4)
        for more in ({"temperature": 1.1}, GUIDED, GUIDED | STUCK)
    ]


def takes(model: Valle) -> list[UtteranceSpec]:
    """Are the best of several, of which some end before the others."""
    likely = {model.config.stop_token: 4.0}
    params = knobs(best_of=2, logit_bias=likely, **ALIGNED)
    return [request(model, n, params=params, **WHOLE) for n in range(3)]


def plain(model: Valle) -> list[UtteranceSpec]:
    """Are cut while others take the slots of those that leave."""
    params = knobs(min_frames=100)
    return [request(model, n % 3, params=params, max_frames=20, **WHOLE) for n in range(6)]


BURSTS: Mapping[str, Callable[[Valle], list[UtteranceSpec]]] = {
    each.__name__: each
    for each in (stops, limits, borders, rewinds, alignments, repeats, takes, plain)
}
