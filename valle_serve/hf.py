"""Our sampler over the causal language models of `transformers`: see docs/library.md.

`logits_processors` samples inside `generate`'s own loop. `generate` is the function of the folder
`custom_generate`, named by `FOLDER`: a loop of ours, which can also take tokens back. Only this
module needs `transformers`.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor
from transformers import DynamicCache, GenerationConfig, LogitsProcessor, LogitsProcessorList
from transformers.utils.generic import ModelOutput

from models.stack.attention import measure_attention
from samplers.ar.backtracking import Backtracker
from samplers.ar.sampler import ArSampler
from samplers.ar.state import RowInput, SlotTable
from samplers.ar.trace import Trace, columns, entries
from samplers.ar.trace import TraceStep as TraceRecord
from samplers.knobs.features import is_on
from samplers.knobs.params import SamplingParams
from samplers.knobs.resolve import resolve

FOLDER: Final = str(Path(__file__).parent)
"""What `generate` takes as `custom_generate`."""

_UNKNOWN: Final = (
    "encoder_no_repeat_ngram_size", "forced_bos_token_id", "forced_eos_token_id",
    "begin_suppress_tokens", "watermarking_config", "top_h", "token_healing",
)  # fmt: skip
_FULL: Final = "full_attention"
_FILTERS: Final = ("top_k", "top_p", "min_p", "typical_p", "epsilon_cutoff", "eta_cutoff")
_LENGTH: Final = ("length_penalty", "exponential_decay_factor")
_SEQUENCES: Final = ("best_of", "beam_width")


@dataclass
class SampledOutput(ModelOutput):
    """What `generate` returns with `return_dict_in_generate`; B rows, N tokens at most."""

    sequences: Tensor | None = None  # ``(B, P + N)`` int64: the prompt, the tokens, padding
    # ``(B, N)`` float32: log-probability of each token in its own sample, nats
    scores: Tensor | None = None
    logprobs: Tensor | None = None  # ``(B, N)`` float32: the same under the model's own logits
    # A dictionary a token, of each row: see docs/trace.md
    trace: Sequence[Sequence[dict[str, Any]]] | None = None
    backtracks: Sequence[int] | None = None  # how often tokens of each row were taken back


class _Sampling(LogitsProcessor):
    """Samples a token a row, and leaves it alone for `generate` to choose."""

    def __init__(self, params: SamplingParams, stop_token: int, max_new_tokens: int) -> None:
        self._params = params
        self._stop_token = stop_token
        self._limit = max_new_tokens
        self._length = -1
        self._sampler: ArSampler | None = None

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Return ``(B, V)`` scores that are -inf but for the token that was sampled."""
        if self._sampler is None or input_ids.shape[1] != self._length + 1:
            self._sampler = _joined(
                list(input_ids), self._params, scores.shape[1], self._stop_token, self._limit
            )
        self._length = input_ids.shape[1]
        sampled = self._sampler.step(scores.float())[:, None]
        return torch.full_like(scores, -torch.inf).scatter_(1, sampled, 0.0)


def logits_processors(
    knobs: Mapping[str, Any], *, stop_token: int, max_new_tokens: int
) -> LogitsProcessorList:
    """Return what samples by these knobs in `generate`, for any model, whether it samples or not.

    Raises ValueError if a knob needs the loop of `custom_generate`, or several sequences.
    """
    params = _resolved(knobs)
    for name in ("backtrack", "entropix", "cfg_strength"):
        if getattr(params, name) != SamplingParams.model_fields[name].default:
            raise ValueError(f"{name} needs custom_generate: a processor sees scores alone")
    return LogitsProcessorList([_Sampling(params, stop_token, max_new_tokens)])


def generate(
    model: Any,
    *,
    knobs: Mapping[str, Any] | None = None,
    negative_prompt_ids: Tensor | None = None,
    negative_prompt_attention_mask: Tensor | None = None,
    **arguments: Any,
) -> Any:
    """Generate tokens as `generate` does, but sampled by our sampler; see docs/library.md.

    ``model`` is any causal language model with a `DynamicCache`. ``knobs`` are those of
    `SamplingParams`, by name; None: those of the generation config that exist there. The
    negative prompt, ``(B, Q)`` int64 with an attention mask that is 0 at padding on the left,
    is read without the prompt if `cfg_strength` is above 1; None is the prompt's last token.
    Other ``arguments`` are those of `generate`.

    Returns ``(B, P + N)`` int64, or a `SampledOutput` if `return_dict_in_generate`. Raises
    ValueError if an argument or knob is not supported.
    """
    for name in ("logits_processor", "prefix_allowed_tokens_fn", "assistant_model", "streamer"):
        if arguments.pop(name, None) is not None:
            raise ValueError(f"custom_generate takes no {name}")
    negative = (negative_prompt_ids, negative_prompt_attention_mask)
    loop = partial(_decode, knobs=knobs, negative=negative)
    return model.generate(custom_generate=loop, **arguments)


@dataclass
class _Row:
    """A row's tokens, with the trace record of each, if there is a trace."""

    given: Tensor  # ``(P,)`` int64, prompt and padding
    backtracker: Backtracker | None
    tokens: list[int] = field(default_factory=list)
    records: list[tuple[TraceRecord, int]] = field(default_factory=list)
    ended: bool = False

    @property
    def ids(self) -> Tensor:
        """What was given, and the tokens, ``(1, n)``."""
        return torch.cat([self.given, self.given.new_tensor(self.tokens)])[None]


class _CachedRows:
    """What a model has read of R rows: its cache, and which of its columns each row sees.

    All rows have the same columns. Where one goes back alone, its later columns are hidden from it;
    columns that no row sees are cropped. The model's own masks of sliding windows count hidden
    columns, and its cache forgets what a row that goes back needs: then both are ours.
    """

    def __init__(
        self, model: Any, prompts: Sequence[Tensor], *, attends: bool, goes_back: bool
    ) -> None:
        self._model = model
        self._attends = attends
        self._windows = _windows(model) if goes_back else {}
        self._cache = DynamicCache() if self._windows else DynamicCache(config=model.config)
        longest = max(map(len, prompts))
        self._seen = torch.stack([_padded(torch.ones_like(one), longest) for one in prompts])
        self._prompted = [len(one) for one in prompts]
        tokens = torch.stack([_padded(one, longest) for one in prompts])
        self._output = self._forward(tokens, (self._seen.cumsum(1) - 1).clamp(min=0))

    @property
    def logits(self) -> Tensor:
        """Behind the newest token of each row, ``(R, V)`` float32."""
        logits: Tensor = self._output.logits[:, -1].float()
        return logits

    @property
    def attention(self) -> Tensor | None:
        """Those of the last layer, ``(R, 4)``; `strength` is that of the log-weights.

        A model gives the weights, not the scores before the softmax.
        """
        if not self._attends:
            return None
        last = self._output.attentions[-1][:, :, -1].float()
        rows = [
            measure_attention(weights[None, :, seen > 0].clamp(min=1e-38).log(), seen.sum()[None])
            for weights, seen in zip(last, self._seen, strict=True)
        ]
        return torch.cat(rows, 1).T

    def feed(self, tokens: Sequence[int], ended: Sequence[bool]) -> None:
        """Read one more token of each row; that of a row that has ended is hidden."""
        device = self._seen.device
        newest = torch.tensor([not one for one in ended], device=device)[:, None]
        positions = self._seen.sum(1, keepdim=True)
        self._seen = torch.cat([self._seen, newest.to(self._seen)], 1)
        self._output = self._forward(torch.tensor(tokens, device=device)[:, None], positions)

    def rewind(self, row: int, length: int) -> None:
        """Forget what a row read behind its prompt and so many tokens; -1 is into the prompt."""
        seen = self._seen[row]
        self._seen[row] = seen * (seen.cumsum(0) <= self._prompted[row] + length)

    def crop(self) -> None:
        """Remove the newest columns that no row sees."""
        used = int(self._seen.any(0).nonzero()[-1]) + 1
        if used < self._seen.shape[1]:
            self._cache.crop(used - self._seen.shape[1])
            self._seen = self._seen[:, :used]

    def _forward(self, tokens: Tensor, positions: Tensor) -> Any:
        masks = {kind: self._mask(positions, window) for kind, window in self._windows.items()}
        (mask, *others) = masks.values() or [self._seen]
        return self._model(
            input_ids=tokens,
            attention_mask=masks if others else mask,
            position_ids=positions,
            past_key_values=self._cache,
            use_cache=True,
            output_attentions=self._attends,
        )

    def _mask(self, positions: Tensor, window: int | None) -> Tensor:
        """Return ``(R, 1, n, C)``: 0 where a query at a position sees a column, else the least."""
        places = self._seen.cumsum(1) - 1
        back = positions[:, :, None] - places[:, None]
        sees = (self._seen[:, None] > 0) & (back >= 0)
        if window is not None:
            sees &= back < window
        dtype = self._model.dtype
        least = torch.full_like(back, torch.finfo(dtype).min, dtype=dtype)
        return least.masked_fill_(sees, 0)[:, None]


def _windows(model: Any) -> dict[str, int | None]:
    """Return the windows of kinds of layers, if any; raises ValueError if one cannot go back."""
    config = model.config.get_text_config(decoder=True)
    window = getattr(config, "sliding_window", None)
    kinds = dict.fromkeys(getattr(config, "layer_types", None) or ())
    if not kinds:
        chunked = getattr(config, "attention_chunk_size", None)
        kinds = {"chunked_attention" if chunked else "sliding_attention" if window else _FULL: None}
    for kind in kinds:
        if kind not in {_FULL, "sliding_attention"}:
            raise ValueError(f"backtrack: this model has layers of {kind}, which cannot go back")
    if "sliding_attention" not in kinds or window is None:
        return {}
    return {kind: None if kind == _FULL else int(window) for kind in kinds}


def _padded(row: Tensor, length: int) -> Tensor:
    return torch.nn.functional.pad(row, (length - len(row), 0))


def _decode(
    model: Any,
    input_ids: Tensor,
    *,
    knobs: Mapping[str, Any] | None,
    negative: tuple[Tensor | None, Tensor | None],
    stopping_criteria: Any,
    generation_config: GenerationConfig,
    **inputs: Any,
) -> Any:
    """Run the loop that `generate` has prepared."""
    if inputs.get("inputs_embeds") is not None or not input_ids.shape[1]:
        raise ValueError("inputs_embeds: custom_generate reads input_ids, which penalties count")
    params = _resolved(_of_config(generation_config, input_ids) if knobs is None else knobs)
    prompts = _unpadded(input_ids, inputs.get("attention_mask"))
    guided = params.cfg_strength > 1
    read = list(prompts)
    if guided:
        without, mask = negative
        read += _unpadded(input_ids[:, -1:] if without is None else without, mask)
    with _eager(model, wanted=params.entropix):
        context = _CachedRows(model, read, attends=params.entropix, goes_back=params.backtrack)
        sampler, rows, (stop, *ends) = _begin(
            context, input_ids, prompts, params, generation_config
        )
        trace = Trace() if generation_config.return_dict_in_generate else None
        while True:
            logits = context.logits
            if guided:  # as `generate` guides
                logits = logits.log_softmax(-1)
            if stop == logits.shape[1]:
                logits = torch.nn.functional.pad(logits, (0, 1), value=-torch.inf)
            own, null = logits.tensor_split([len(rows)])
            for place, row in enumerate(rows):
                if ends and len(row.tokens) < params.min_frames:  # the sampler bans the first
                    own[place, ends] = -torch.inf
            sampled = sampler.step(own, trace, null if guided else None, context.attention)
            for place, (row, token) in enumerate(zip(rows, sampled.tolist(), strict=True)):
                if not row.ended:
                    row.tokens.append(token)
                    if trace:
                        row.records.append((trace.records[-1], place))
                    _check(row, place, sampler, context, guided=guided)
                    row.ended = row.ended or bool(stopping_criteria(row.ids, None)[0])
            if all(row.ended for row in rows):
                break
            context.crop()
            newest = [row.tokens[-1] if row.tokens else int(row.given[-1]) for row in rows]
            times = 1 + guided
            context.feed(newest * times, [row.ended for row in rows] * times)
    return _output(input_ids, rows, generation_config)


def _begin(
    context: _CachedRows,
    input_ids: Tensor,
    prompts: Sequence[Tensor],
    params: SamplingParams,
    config: GenerationConfig,
) -> tuple[ArSampler, list[_Row], list[int]]:
    """Return sampler and rows, and the stops: behind the vocabulary if there is no end of text."""
    # The first of several is the one that the knobs of length move, where they move any.
    ends = _listed(config.eos_token_id)
    moved = [name for name in _LENGTH if is_on(name, params)]
    if len(ends) > 1 and moved:
        raise ValueError(f"{moved[0]} moves one eos_token_id, and there are {len(ends)}")
    vocab_size = context.logits.shape[1]
    stops = ends or [vocab_size]
    stop = stops[0]
    limit = config.max_length - input_ids.shape[1]
    sampler = _joined(prompts, params, max(vocab_size, stop + 1), stop, limit)
    rows = [
        _Row(one, Backtracker(params, (), first_block=0) if params.backtrack else None)
        for one in input_ids
    ]
    return sampler, rows, stops


def _listed(ends: Any) -> list[int]:
    """Return the ends of text that a generation config names: one, several or none."""
    if isinstance(ends, Tensor):
        ends = ends.tolist()
    if ends is None:
        return []
    return [int(one) for one in (ends if isinstance(ends, list | tuple) else [ends])]


def _check(
    row: _Row, place: int, sampler: ArSampler, context: _CachedRows, *, guided: bool
) -> None:
    """Take the newest tokens of a row back, if they complete a loop or a banned sequence."""
    verdict = row.backtracker.check(row.tokens) if row.backtracker else None
    if verdict is None or row.backtracker is None:
        return
    del row.tokens[verdict.keep :], row.records[verdict.keep :]
    row.ended = verdict.stuck
    sampler.rewind(place, verdict.keep, row.backtracker.avoided(verdict.keep, sampler.vocab_size))
    for one in (place, place + len(sampler.active)) if guided else (place,):
        context.rewind(one, verdict.keep - 1)  # the last token that is kept is read once more


def _joined(
    prompts: Sequence[Tensor], params: SamplingParams, vocab_size: int, stop: int, limit: int
) -> ArSampler:
    """Return a sampler with a row for each prompt, each with noise of its own."""
    table = SlotTable(
        len(prompts),
        frames=limit,
        vocab_size=vocab_size,
        prompt=max(map(len, prompts)),
        device=prompts[0].device,
    )
    sampler = ArSampler(table, stop_token=stop)
    assert params.seed is not None
    for slot, prompt in enumerate(prompts):
        sampler.join([slot], RowInput(params, params.seed, limit, utterance=slot, prompt=prompt))
    return sampler


def _resolved(knobs: Mapping[str, Any]) -> SamplingParams:
    """Return every knob; what is not given is the preset's."""
    seed = {"seed": int(torch.randint(2**32, ()))}  # that of torch decides
    params = resolve(SamplingParams.model_validate({**seed, **knobs}))
    several = [name for name in _SEQUENCES if getattr(params, name) > 1]
    if params.entropix and params.entropix_action == "branch":
        several.append("entropix_action")
    if several:
        raise ValueError(f"{several[0]}: only the service draws several hypotheses")
    return params


def _of_config(config: GenerationConfig, input_ids: Tensor) -> dict[str, Any]:
    """Return our knobs with the values that the generation config gives to its own."""
    unknown = [name for name in _UNKNOWN if getattr(config, name, None)]
    if (config.num_beams or 1) > 1:
        unknown.append("num_beams")
    if unknown:
        raise ValueError(f"custom_generate has no {unknown[0]}")
    start, factor = config.exponential_decay_length_penalty or (0, 1.0)
    words = [tuple(one) for one in config.bad_words_ids or ()]
    biases = config.sequence_bias or {}
    pairs = biases.items() if isinstance(biases, dict) else biases
    bias = {tuple(one): float(value) for one, value in pairs}
    if any(len(one) > 1 for one in bias):
        raise ValueError("custom_generate has no sequence_bias of several tokens")
    knobs = {
        "preset": "hf",
        "penalty_includes_prompt": True,
        "protect_stop": False,
        "temperature": (config.temperature or 1.0) if config.do_sample else 0.0,
        "repetition_penalty": config.repetition_penalty or 1.0,
        "no_repeat_ngram_size": config.no_repeat_ngram_size or 0,
        "min_frames": max(
            config.min_new_tokens or 0, (config.min_length or 0) - input_ids.shape[1], 0
        ),
        "exponential_decay_start": start,
        "exponential_decay_factor": factor,
        "cfg_strength": config.guidance_scale or 1.0,
        "cfg_rescale": 0.0,
        "logit_bias": {token: value for (token,), value in bias.items()},
        "ban_tokens": [
            *(config.suppress_tokens or ()), *(one[0] for one in words if len(one) == 1)
        ],
        "ban_sequences": [{"codes": one} for one in words if len(one) > 1],
    }  # fmt: skip
    filters = {name: getattr(config, name) if config.do_sample else None for name in _FILTERS}
    return knobs | {
        name: SamplingParams.model_fields[name].default if value is None else value
        for name, value in filters.items()
    }


def _unpadded(ids: Tensor, mask: Tensor | None) -> list[Tensor]:
    return [one if mask is None else one[mask[row].bool()] for row, one in enumerate(ids)]


@contextmanager
def _eager(model: Any, *, wanted: bool) -> Iterator[None]:
    """Have a model compute its attention so that it can return the weights."""
    before = model.config._attn_implementation
    if wanted:
        model.set_attn_implementation("eager")
    try:
        yield
    finally:
        if wanted:
            model.set_attn_implementation(before)


def _output(input_ids: Tensor, rows: Sequence[_Row], config: GenerationConfig) -> Any:
    """Return what `generate` returns."""
    longest = max(len(row.tokens) for row in rows)
    padding = next(iter([*_listed(config.pad_token_id), *_listed(config.eos_token_id), 0]))

    def table(values: Sequence[Sequence[float]], fill: float, like: Tensor) -> Tensor:
        padded = [[*one, *[fill] * (longest - len(one))] for one in values]
        return like.new_tensor(padded).reshape(len(rows), longest)

    tokens = table([row.tokens for row in rows], padding, input_ids)
    sequences = torch.cat([input_ids, tokens], 1)
    if not config.return_dict_in_generate:
        return sequences
    trace = [entries(columns(row.records)) for row in rows]
    nats = torch.zeros(0, device=input_ids.device)
    return SampledOutput(
        sequences=sequences,
        scores=table([[one["score"] for one in row] for row in trace], 0.0, nats),
        logprobs=table([[one["logprob"] for one in row] for row in trace], 0.0, nats),
        trace=trace,
        backtracks=[len(row.backtracker.taken) if row.backtracker else 0 for row in rows],
    )
