"""Text that grows: each frame is predicted from the words that were known when it was drawn."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from lab.training.lm.codes import CodedUtterance
from lab.training.lm.growing import FrameWords, known_text, words_of_symbols
from lab.training.lm.rows import Row, losses_of
from models.config import AlignmentHead, ModelConfig
from models.text import ENGLISH_SYMBOLS
from models.valle import Valle

CONFIG = ModelConfig(
    name="toy", width=16, layers=2, heads=2, kv_heads=1, ffn=24, phonemes=ENGLISH_SYMBOLS,
    max_phonemes=100, levels=2, codes=16, max_prompt_frames=20, shared_tables=True,
    alignment=AlignmentHead(layer=1, head=1, lead_frames=0),
)  # fmt: skip
PHONEMES = "ðə kæt sæt."
WORDS = words_of_symbols(PHONEMES)


@pytest.fixture
def model() -> Valle:
    torch.manual_seed(0)
    made = Valle(CONFIG)
    torch.nn.init.normal_(made.separator)
    return made.eval()


def utterance(phonemes: str = PHONEMES, frames: int = 9) -> CodedUtterance:
    codes = np.random.default_rng(0).integers(0, 16, (frames, 2)).astype(np.int16)
    return CodedUtterance("the cat sat", phonemes, codes, "a")


def loss_at(model: Valle, row: Row) -> float:
    with torch.no_grad():
        return losses_of(model, [row], np.random.default_rng(0))[1][0][0]


def test_a_space_belongs_to_the_word_behind_it_and_the_end_to_the_last():
    assert WORDS.tolist() == [0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2]


@pytest.mark.parametrize(
    ("look_ahead", "known_at_first"), [(0, 3), (1, 7), (2, len(WORDS)), (9, len(WORDS))]
)
def test_words_are_known_as_far_as_the_look_ahead_and_the_end_with_the_last(
    look_ahead: int, known_at_first: int
) -> None:
    frames = np.array([0, 0, 1, 1, 0, 1, 2, 2, 2])
    known = known_text(frames, WORDS, look_ahead)
    assert known.unseen.shape == (10, 13)
    assert known.first_symbols == known_at_first
    counts = (~known.unseen).sum(1)
    assert (np.diff(counts) >= 0).all()  # what was known stays known
    assert counts[-1] == 13
    assert known.unseen[0, -1] == (look_ahead < 2)
    if look_ahead == 1:  # frame 3 is drawn after frame 2, which is in word 1
        assert counts.tolist() == [7, 7, 7, 13, 13, 13, 13, 13, 13, 13]


@pytest.mark.parametrize("prompted", [False, True])
def test_a_row_whose_text_grows_does_not_hear_of_words_that_come_later(model, prompted):
    prompt = np.zeros((5, 2), np.int16) if prompted else None
    words = np.zeros(9, np.int64)  # all of it is in the first word
    other = utterance("ðə kæt ɹæn.")
    for known, differs in ((None, True), (known_text(words, WORDS, 1), False)):
        rows = [Row(one, 0, prompt, known=known) for one in (utterance(), other)]
        losses = [loss_at(model, row) for row in rows]
        assert (abs(losses[0] - losses[1]) > 1e-6) is differs


def test_a_text_that_is_known_from_the_first_is_no_other_than_a_whole_one(model):
    whole = Row(utterance(), 0)
    known = replace(whole, known=known_text(np.zeros(9, np.int64), WORDS, 2))
    assert loss_at(model, known) == pytest.approx(loss_at(model, whole), abs=1e-6)


def predictions(model: Valle, rows: Sequence[Row]) -> float:
    with torch.no_grad():
        return float(losses_of(model, list(rows), np.random.default_rng(0))[0])


def test_a_row_that_grows_leaves_the_other_rows_of_its_batch_as_they_are(model):
    grown = Row(utterance(), 0, known=known_text(np.zeros(9, np.int64), WORDS, 1))
    others = [Row(utterance(frames=14), 0), Row(utterance(frames=6), 1)]
    together = predictions(model, [grown, *others])
    counts = [10, 15, 6]
    alone = [predictions(model, [row]) for row in (grown, *others)]
    expected = sum(loss * count for loss, count in zip(alone, counts, strict=True)) / sum(counts)
    assert together == pytest.approx(expected, abs=1e-5)


def test_first_frames_are_predicted_as_from_the_shorter_text_itself(model):
    """As the service draws them: without the end mark, the separator where the text ends."""
    known = known_text(np.zeros(1, np.int64), WORDS, 1)
    one = utterance(frames=1)
    row = Row(one, 0, known=known)
    prefix = model.prefix(one.phoneme_ids, 0)
    length = known.first_symbols
    kept = [*range(prefix.text_start + length), len(prefix) - 1]
    positions = prefix.positions[kept].clone()
    positions[-1] = length
    with torch.no_grad():
        frame = model.embed_response(torch.from_numpy(one.codes.astype(np.int64)), 0)
        hidden = model.transformer(
            torch.cat([prefix.embeddings[kept], frame])[None],
            torch.cat([positions, torch.zeros(1, dtype=torch.int64)])[None],
        )[0]
        logits = model.logits(hidden[-2:], 0)
    wanted = torch.tensor([int(one.codes[0, 0]), CONFIG.stop_token])
    expected = float(torch.nn.functional.cross_entropy(logits, wanted))
    assert loss_at(model, row) == pytest.approx(expected, abs=1e-5)


def test_frames_are_in_words_in_order_and_are_aligned_once(model, monkeypatch):
    words = FrameWords(model)
    found = words.of(utterance())
    assert len(found) == 9
    assert (np.diff(found) >= 0).all()
    assert set(found.tolist()) <= {0, 1, 2}
    monkeypatch.setattr(model, "prefix", None)
    np.testing.assert_array_equal(words.of(utterance()), found)
    with pytest.raises(ValueError, match="no alignment head"):
        FrameWords(Valle(CONFIG.model_copy(update={"alignment": None})))
