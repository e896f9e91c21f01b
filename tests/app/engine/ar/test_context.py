"""What an utterance begins with: its text, its voice, and the speech that it continues.

That codes are sampled from what follows it is said by `test_runner`.
"""

import pytest
import torch
from torch import Tensor

from app.engine.utterance import ContextUtterance, UtteranceSpec
from models.checkpoints.builtin import load_lm
from models.config import BOS_ID, EOS_ID
from models.prefix import Prefix
from models.valle import Valle
from samplers.knobs.params import SamplingParams
from tests.toy.make_toy import MODEL, make

OWN, BEFORE = [BOS_ID, 3, 5, 4, EOS_ID], [BOS_ID, 8, 7, EOS_ID]
BOTH = [BOS_ID, 8, 7, 3, 5, 4, EOS_ID]
SAID, PROMPT, CODES = (
    torch.randint(512, (frames, 8), generator=torch.Generator().manual_seed(frames))
    for frames in (9, 7, 5)
)
NOTHING = SAID[:0]


@pytest.fixture(scope="module", params=[False, True], ids=["restarting", "counting through"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Valle:
    config = MODEL.model_copy(update={"unified_positions": request.param})
    return load_lm(make(tmp_path_factory.mktemp("toy"), config=config))


@pytest.mark.parametrize("as_prefix", [False, True])
@pytest.mark.parametrize("continues", [False, True])
@torch.inference_mode()
def test_the_ar_continues_earlier_speech_with_both_texts_and_finer_levels_hear_their_own_alone(
    model: Valle, continues: bool, as_prefix: bool
) -> None:
    before = (ContextUtterance(BEFORE, SAID[:, 0]),) if continues else ()
    params = SamplingParams(cfg_strength=2.0, prompt_as_prefix=as_prefix)
    one = UtteranceSpec(OWN, params, 0, 0, max_frames=30, prompt=PROMPT, context=before)
    begun = torch.cat([PROMPT if as_prefix else NOTHING, SAID if continues else NOTHING])

    def follows(prefix: Prefix, earlier: Tensor) -> Tensor:
        return model.ar_logits(prefix, torch.cat([earlier, CODES])[:, :1])[len(earlier) :]

    found = [follows(prefix, NOTHING) for prefix in one.ar_prefixes(model)]
    ids, prompt = BOTH if continues else OWN, None if as_prefix else PROMPT
    expected = [model.prefix(ids, 0, prompt=prompt), model.null_prefix(0)]
    for logits, prefix in zip(found, expected, strict=True):
        torch.testing.assert_close(logits, follows(prefix, begun), atol=1e-4, rtol=1e-4)
    own, heard = one.prefix(model, 1), model.prefix(OWN, 1, prompt=PROMPT)
    assert torch.equal(own.embeddings, heard.embeddings)
