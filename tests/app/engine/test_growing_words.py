"""Speech that begins before its sentence is written is that of the sentence, to the bit."""

import asyncio
import random
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest

from app.engine.core import (
    AudioChunk,
    ReadingOptions,
    ReportOptions,
    Resume,
    SpeechJob,
    SpeechPart,
    SpeechResult,
)
from app.engine.engine import SpeechEngine
from app.engine.errors import InvalidRequest
from app.engine.growing import GrowingSpeech
from app.engine.results import Samples
from app.main import create_engine
from samplers.knobs.params import SamplingParams
from tests.app.engine.running import until
from tests.app.tools.serving import settings_of

pytestmark = pytest.mark.anyio
TEXT = "Two of the old men sat there, and then they went home. It is 5 or six now. Good!"
KNOBS: dict[str, Any] = {"preset": "default", "temperature": 0.9, "nar_levels": 2}


def job_of(text: str = "", lookahead: int = 2, **given: Any) -> SpeechJob:
    params = SamplingParams(seed=5, text_lookahead_words=lookahead, **KNOBS)
    return SpeechJob(f"job-{random.random()}", text, params, **given)


@asynccontextmanager
async def speaking(toy: str) -> AsyncIterator[SpeechEngine]:
    settings = settings_of(toy, weights="int8", alignment="1.1+3", check_golden=False)
    engine = create_engine(settings)
    async with engine, asyncio.timeout(60):
        await engine.lifecycle.wait_ready()
        yield engine


def growing(engine: SpeechEngine, **given: Any) -> GrowingSpeech:
    return GrowingSpeech(engine, job_of(**given), max_text_chars=400, busy_timeout_s=20.0)


async def result_and_samples(speech: GrowingSpeech) -> tuple[SpeechResult, Samples]:
    chunks = [chunk async for chunk in speech]
    assert speech.result is not None
    return speech.result, np.concatenate([chunk.samples for chunk in chunks])


async def spoken(
    engine: SpeechEngine, packets: Iterable[str], wait: bool = False, **given: Any
) -> tuple[SpeechResult, Samples]:
    """Speak a text of packets, that come at once, or each when what there is has been spoken."""
    speech = growing(engine, **given)

    async def write() -> None:
        for packet in packets:
            await speech.append(packet)
            if wait:
                await until(lambda: speech.waits_for_text)
        speech.end()

    writing = asyncio.create_task(write())
    found = await result_and_samples(speech)
    await writing
    return found


@pytest.mark.slow
@pytest.mark.parametrize("lookahead", [1, 2])
async def test_packets_and_the_speed_of_typing_change_no_code_and_no_sample(toy, lookahead) -> None:
    async with speaking(toy) as engine:
        given: dict[str, Any] = {"lookahead": lookahead}
        whole, sound = await spoken(engine, [TEXT], **given)
        assert any(one.growths for one in whole.utterances)
        words = [f"{word} " for word in TEXT.split()]
        for packets, wait in ((TEXT, False), (words, True), (words, False)):
            result, samples = await spoken(engine, packets, wait=wait, **given)
            assert result.codes_sha256 == whole.codes_sha256
            for one, other in zip(result.utterances, whole.utterances, strict=True):
                assert (one.text, one.phonemes) == (other.text, other.phonemes)
                assert (one.growths, one.finish_reason) == (other.growths, other.finish_reason)
            np.testing.assert_array_equal(samples, sound)
        chunks = [chunk async for chunk in engine.submit(job_of(TEXT, lookahead))]
        assert chunks[-1].result is not None
        assert chunks[-1].result.codes_sha256 == whole.codes_sha256


@pytest.mark.slow
async def test_sound_comes_before_the_sentence_is_written_and_others_are_served_meanwhile(
    toy,
) -> None:
    async with speaking(toy) as engine:
        speech = growing(engine, lookahead=1)
        await speech.append("Two of the old men sat there and then")
        first = await asyncio.wait_for(anext(speech), 30)
        assert len(first.samples)
        assert first.result is None
        chunks = []

        async def listen() -> None:
            async for chunk in speech:
                chunks.append(chunk)

        listening = asyncio.create_task(listen())
        await until(lambda: speech.waits_for_text)
        other = [chunk async for chunk in engine.submit(job_of("One.", 0))]
        assert other[-1].result is not None
        assert not listening.done()
        speech.flush()
        await until(lambda: any(chunk.result for chunk in chunks))
        speech.end()
        await listening
        assert speech.result is not None
        assert speech.result.utterances[0].text == "Two of the old men sat there and then"


@pytest.mark.slow
async def test_what_comes_of_a_sentence_that_was_ended_is_not_spoken_again(toy) -> None:
    async with speaking(toy) as engine:
        speech = growing(engine, lookahead=1, max_duration_s=0.3)
        await speech.append("Two of the old men sat there and ")
        while (await anext(speech)).result is None:
            pass
        assert speech.result is not None
        assert speech.result.finish_reason == "length"
        await speech.append("went home. ")
        speech.end()
        result, _ = await result_and_samples(speech)
        assert len(result.utterances) == 1


@pytest.mark.slow
async def test_a_sentence_whose_rest_is_refused_fails_by_name_and_frees_its_rows(toy) -> None:
    async with speaking(toy) as engine:
        speech = growing(engine, lookahead=1, reading=ReadingOptions(unreadable="refuse"))
        await speech.append("Two of the old men sat there ")
        await anext(speech)
        await speech.append("and пошли. ")
        speech.end()
        with pytest.raises(InvalidRequest, match="reads English only"):
            await result_and_samples(speech)
        await until(lambda: not engine.status.running and not engine.status.used_slots)


@pytest.mark.slow
async def test_times_of_words_are_those_of_the_whole_text_and_told_before_it_is_written(
    toy,
) -> None:
    async with speaking(toy) as engine:
        report = ReportOptions(timestamps="phoneme")
        whole, sound = await spoken(engine, [TEXT], report=report)
        speech = growing(engine, report=report)
        words = [f"{word} " for word in TEXT.split()]
        chunks: list[AudioChunk] = []

        async def listen() -> None:
            async for chunk in speech:
                chunks.append(chunk)

        listening = asyncio.create_task(listen())
        await speech.append("".join(words[:7]))
        await until(lambda: any(chunk.words for chunk in chunks))
        assert next(word for chunk in chunks for word in chunk.words).word == "Two"
        assert all(chunk.result is None for chunk in chunks)
        for word in words[7:]:
            await speech.append(word)
            await until(lambda: speech.waits_for_text)
        speech.end()
        await listening
        assert speech.result is not None
        assert speech.result.codes_sha256 == whole.codes_sha256
        np.testing.assert_array_equal(np.concatenate([one.samples for one in chunks]), sound)
        for one, other in zip(speech.result.utterances, whole.utterances, strict=True):
            assert one.words == other.words
        found = [chunk async for chunk in engine.submit(job_of(TEXT, report=report))][-1].result
        assert found is not None
        assert [one.words for one in found.utterances] == [one.words for one in whole.utterances]


@pytest.mark.slow
async def test_behind_the_sentences_of_a_take_that_is_gone_on_from_words_are_enough(toy) -> None:
    async with speaking(toy) as engine:
        text = "Two old men. Then the others went home with them again."
        whole, _ = await spoken(engine, [text])
        kept = Resume(whole.utterances[:1], 1, 2)
        speech = growing(engine, part=SpeechPart(kept=kept))
        chunks: list[AudioChunk] = []

        async def listen() -> None:
            async for chunk in speech:
                chunks.append(chunk)

        listening = asyncio.create_task(listen())
        await speech.append("Two old me")
        assert speech.waits_for_text  # the take has frames of it
        await speech.append("n. Then the others went home with them ag")
        await until(lambda: speech.result is not None and speech.waits_for_text)
        assert sum(chunk.result is not None for chunk in chunks) == 1
        assert engine.status.used_slots
        await speech.append("ain.")
        speech.end()
        await listening
        assert speech.result is not None
        assert speech.result.codes_sha256 == whole.codes_sha256
