"""The rows of level 0 and the model over them: prefixes into slots, then frames of each, by steps.

Two kinds, as the arithmetic differs: over slots, launched operator by operator, on a CPU; and over
pages, in fixed shapes that can be captured, on a GPU.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from app.engine.ar.sequence import ArSequence, GuidanceBranch
from app.engine.ar.text_progress import TextProgress, follows_text
from app.engine.utterance import UtteranceSpec, ar_codes_of
from models.alignment.attention import TextAttention
from models.alignment.path import MonotonicPath, PathFrame
from models.prefix import Prefix
from models.prefix_cache import PrefixCache, Read, SlotPrefix
from models.stack.attention import attention_statistics
from models.stack.slot_cache import SlotCache
from models.stack.taps import Taps
from models.valle import Valle
from samplers.ar.backtracking import Backtracker
from samplers.ar.sampler import ArSampler, StepResult
from samplers.ar.state import Avoided, HostColumn, RowInput, SampledCodes, SlotTable
from samplers.ar.trace import TraceStep, log_prob_of
from samplers.knobs.features import is_on, sequences_of
from samplers.ops.rows import sanitise
from samplers.plain import is_plain, plain_row, plain_width

_ALIGNED: Final = 16
"""Rows of attention are filled up to a multiple, so that no row's sum depends on its neighbours."""


class ModelOutput(NamedTuple):
    """What the model says to B sequences."""

    own: Tensor  # ``[B, V]`` logits with the text; any in those that are idle, as in the others
    null: Tensor | None  # ``[G, V]`` without it, or predicted, of those that are guided, if any is
    attention: Tensor  # ``[B, 4]`` float32 of `samplers.ops.entropix.ATTENTION`
    invalid: Tensor  # ``[n]`` bool: whether there was a NaN
    places: Sequence[int]  # whose, of each of the n
    # ``[B, W]`` float32, the attention to the text, see `ArModelRunner.text_width`; None if
    # nobody's is followed
    text: Tensor | None
    # ``[B]`` int64, the codes of plain rows, which are sampled already, and -1 of others; None: all
    # are to be sampled
    known_codes: Tensor | None = None


class SampledTokens(NamedTuple):
    """One frame of what a step drew, on the host, of B sequences."""

    codes: Sequence[int]  # the stop where a row has ended
    logprobs: Sequence[float]  # under the model's own logits, nats; empty if nobody asked
    invalid: frozenset[int]  # those whose logits had NaN
    text: NDArray[np.float32] | None = None  # ``[B, W]``, as `ModelOutput.text`


Fetch = Callable[[], Sequence[SampledTokens]]
"""Gives the frames that a step drew, in order; waits for no later step."""


@dataclass
class InFlightStep:
    """A step that was queued: its B sequences in the order of their slots, and what it samples."""

    sequences: Sequence[ArSequence]
    generations: Sequence[int]  # of each, when it was queued
    fetch: Fetch
    record: TraceStep | None = None  # of the trace
    # ``[B, V]`` the model's logits, and what the sampler made of them; None where no utterance of
    # the step is read at once.
    own: Tensor | None = None
    result: StepResult | None = None

    def fresh(self, places: Sequence[int]) -> list[int]:
        """Return those of some places whose sequence has not ended or gone back since."""
        return [
            place for place in places if self.sequences[place].generation == self.generations[place]
        ]


class ArModelRunner(ABC):
    """The sequences that have rows, consistent in the KV cache and in the sampler.

    A sequence has a slot of the cache for each of its conditions, from `begin` to `release`, and
    a row of the sampler in the first of them, from `add` or `fork` to `remove`.
    """

    # How many steps are queued before the host reads what the first of them drew
    lag: ClassVar[int] = 0
    # How many frames a step has that `sample` queues
    stride: ClassVar[int] = 1

    def __init__(self, model: Valle, cache: SlotCache, reader: Callable[[Taps], Read]) -> None:
        config = model.config
        device = model.separator.device
        slots = len(cache.lengths)
        self.model = model
        self.cache = cache
        head = config.alignment
        # The queries of the last layer and of the alignment head, and what the null head reads
        asked = [-1] if head is None else [-1, head.layer]
        self.taps = Taps(asked, model.null_taps.outputs)
        self._read = reader(self.taps)
        # The keys of the alignment head of the symbols of each slot's text, ``[S, W, head_dim]``,
        # what is added to their scores, ``[S, W]``, and the query at the end of the prefix
        self.text_width = (
            0 if head is None else -(-(config.max_phonemes + 2) // _ALIGNED) * _ALIGNED
        )
        self.text_keys = torch.zeros(slots, self.text_width, config.head_dim, device=device)
        self.text_bias = torch.zeros(slots, self.text_width, device=device)
        self.first_query = torch.zeros(slots, config.head_dim, device=device)
        self.table = SlotTable(
            slots,
            frames=cache.max_length,
            prompt=config.max_prompt_frames,
            vocab_size=config.codes + 1,
            device=device,
            shared=not self.lag,
        )
        self.sampler = ArSampler(self.table, stop_token=config.stop_token)
        # ``[S, (1 + L) * D]``, the hidden states at the end of the prefix in each slot, which
        # predict the first frame
        self.first_hidden = model.separator.new_zeros(slots, self.taps.width(config.width))
        # ``[4, S]`` float32, the attention statistics there; NaN where not computed
        self.first_attention = torch.zeros(4, slots, device=device)
        self._free = list(range(slots))
        self._rows: set[ArSequence] = set()
        # Those that one function samples, and ``[S, plain_width(V)]`` int64, their knobs
        self._plain: set[ArSequence] = set()
        width = plain_width(self.sampler.vocab_size)
        self.plain = torch.zeros(slots, width, dtype=torch.int64, device=device)

    @property
    def free(self) -> int:
        """How many slots are free."""
        return len(self._free)

    def has(self, sequence: ArSequence) -> bool:
        """Return whether a sequence has a row."""
        return sequence in self._rows

    def begin(
        self,
        prefixes: PrefixCache,
        inputs: UtteranceSpec,
        own: Sequence[Prefix],
        later: deque[UtteranceSpec],
    ) -> list[ArSequence]:
        """Run an utterance's own prefixes, once, into free slots of as many sequences as it has.

        There must be as many free slots as it needs. None has a row yet. ``later`` are the inputs
        with more of its text, if that grows; those are taken with which frames were kept.
        """
        count = sequences_of(inputs.params) * len(own)
        slots = self._free[:count]
        self._free = self._free[count:]
        sequences: list[ArSequence] = []
        try:
            first = [
                self._prefill(prefixes, inputs, place, prefix, slots[place])
                for place, prefix in enumerate(own)
            ]
            progress = self._text_progress(inputs)
            if inputs.kept is not None:
                first[1:] = [self._run_kept(one, ar_codes_of(inputs.kept)) for one in first[1:]]
                inputs, first[0] = self._run_with_text(prefixes, inputs, later, first[0], progress)
            for start in range(0, count, len(own)):
                conditions = [
                    one if not start else self._copied(one, slots[start + place])
                    for place, one in enumerate(first)
                ]
                block = self.model.config.block_frames
                stop = self.model.config.stop_token
                backtracker = None
                if (params := inputs.params).backtrack:
                    kept = inputs.kept
                    backtracker = Backtracker(
                        params,
                        inputs.silent,
                        first_block=block,
                        kept_frames=0 if kept is None else len(kept.codes),
                        kept_backtracks=() if kept is None else kept.backtracks,
                    )
                sequences.append(
                    ArSequence(
                        inputs,
                        conditions,
                        backtracker,
                        progress and progress.copy(),
                        stop_token=stop,
                        later=later,
                    )
                )
        except BaseException:
            self._give_back(slots)
            raise
        return sequences

    def release(self, sequences: Iterable[ArSequence]) -> None:
        """Free the slots of sequences, and the rows that they have left."""
        for one in sequences:
            self.remove([one])
            self._give_back([condition.slot for condition in one.conditions])
            one.conditions = ()

    def add(self, sequences: Sequence[ArSequence], inputs: UtteranceSpec) -> None:
        """Add those of an utterance: all beams of a search as one, others each as a candidate."""
        sampled = None
        if (kept := inputs.kept) is not None:
            state = None
            end = len(kept.codes)
            if (memory := kept.memory) is not None:
                state = float(memory.mu[end]), int(memory.last_act[end])
            sampled = SampledCodes(ar_codes_of(kept), len(kept.backtracks), state)
        slots = [one.slot for one in sequences]
        rows = [slots] if inputs.params.beam_width else [[slot] for slot in slots]
        for candidate, own in enumerate(rows):
            self.sampler.join(own, _row(inputs, candidate, sampled))
        for one in sequences:
            self._enter(one)
            if (avoided := self._avoided(one)) is not None:
                self.sampler.avoid(one.slot, avoided)

    def remove(self, sequences: Sequence[ArSequence]) -> None:
        """Remove sequences; their slots stay theirs. Those that have no row are skipped."""
        for one in sequences:
            if one in self._rows:
                self.sampler.leave(one.slot)
                self._leave(one)

    def foresee(
        self, step: InFlightStep, frames: Sequence[SampledTokens], places: Sequence[int]
    ) -> list[dict[int, PathFrame]]:
        """Return of each frame how the sequences at some places follow their texts, by place.

        It holds for a sequence as long as it takes all frames before, see `append`.
        """
        texts = list[NDArray[np.float32]]()
        for arrived in frames:
            if arrived.text is None:  # of all frames of a step, or of none
                return [{}] * len(frames)
            texts.append(arrived.text)
        followed = list[int]()
        paths = list[MonotonicPath]()
        for place in places:
            sequence = step.sequences[place]
            if sequence.progress is not None and not sequence.idle:
                followed.append(place)
                paths.append(sequence.progress.path)
        if not followed:
            return [{}] * len(frames)
        ahead = MonotonicPath.ahead(paths, np.stack([text[followed] for text in texts]))
        return [dict(zip(followed, path_frames, strict=True)) for path_frames in ahead]

    def append(self, step: InFlightStep, arrived: SampledTokens, place: int) -> None:
        """Append what a step drew to the sequence at a place, and rewind its row if need be."""
        one = step.sequences[place]
        if one.idle:
            return
        if step.record is not None and one.inputs.trace:
            one.records.append((step.record, place))
        if one.keeps_logprobs:
            one.logprobs.append(arrived.logprobs[place])
        kept = one.append(arrived.codes[place])
        if kept is not None and one.finish_reason is None:
            self.rewind(one)

    def rewind(self, sequence: ArSequence) -> None:
        """Have a row go on behind the codes that its sequence has kept."""
        kept = len(sequence.codes)
        self.sampler.rewind(sequence.slot, kept, self._avoided(sequence))
        sequence.generation += 1
        for condition in sequence.conditions:
            # The last frame that is kept is fed once more.
            self.cache.rewind(condition.slot, condition.length + max(0, kept - 1))
            self._cache_changed(condition.slot)

    @torch.inference_mode()
    def grow(self, prefixes: PrefixCache, sequence: ArSequence) -> None:
        """Have a row go on with all of its text that its next frame is drawn with.

        Frames keep the keys and values that they were drawn with. Raises OutOfPages if there is no
        memory for the text; the sequence is then to be released.
        """
        first, *others = sequence.conditions
        while sequence.is_due and sequence.later:
            sequence.grow()
        frames = max(0, len(sequence.codes) - 1)  # the newest is fed with the text as it is now
        first = self._read_anew(prefixes, sequence.inputs, first, frames)
        for one in others:
            self.cache.rewind(one.slot, one.length + frames)
        sequence.conditions = (first, *others)
        sequence.generation += 1
        row = _row(sequence.inputs)
        self.sampler.change(sequence.slot, row, len(sequence.codes), self._avoided(sequence))
        self._write_row(sequence)

    def copy(self, source: ArSequence, target: ArSequence) -> None:
        """Overwrite a sequence, though not its row, with another of the same utterance.

        Positions of the cache that both have in common are not copied.
        """
        length = min(len(target.codes), len(source.codes))
        differs = np.not_equal(target.codes[:length], source.codes[:length])
        common = int(differs.argmax()) if differs.any() else length
        for condition, given in zip(target.conditions, source.conditions, strict=True):
            lengths = self.cache.lengths[condition.slot], self.cache.lengths[given.slot]
            shared = min(condition.length + common, *lengths)
            self.cache.fork(given.slot, condition.slot, shared=shared)
            self._cache_changed(condition.slot)
        target.copy_from(source)

    @torch.inference_mode()
    def fork(self, source: ArSequence, target: ArSequence, code: int, number: int) -> None:
        """Add a copy of a row, in slots of its own, that drew another code in the last step.

        Its noise depends on ``number``, counted from 1 among the copies of this row.
        """
        self.copy(source, target)
        target.codes[-1] = code
        self.sampler.fork(source.slot, target.slot, len(target.codes), code, number)
        self._enter(target)

    @abstractmethod
    def feed(self, sequences: Sequence[ArSequence]) -> ModelOutput:
        """Feed the newest frame of each sequence that is not idle; of at least one."""

    def sample(self, sequences: Sequence[ArSequence]) -> Fetch | None:  # noqa: ARG002
        """Feed the sequences and sample `stride` frames; None where not all are plain."""
        return None

    def fetch(self, fed: ModelOutput, codes: Tensor, logprobs: Tensor | None) -> Fetch:
        """Return what gives ``[B]`` codes, and log-probabilities if asked, once they arrived."""

        def arrived() -> list[SampledTokens]:
            flags = fed.invalid.tolist()
            invalid = {place for place, flag in zip(fed.places, flags, strict=True) if flag}
            nats = [] if logprobs is None else logprobs.tolist()
            text = None if fed.text is None else fed.text.numpy()
            return [SampledTokens(codes.tolist(), nats, frozenset(invalid), text)]

        return arrived

    def read_text(self, sequence: ArSequence) -> Tensor | None:
        """Run the frames of a sequence that has no row any more again, in its slot.

        Returns how much each frame attends to each of the utterance's symbols, ``[T, S]``
        float32 on the host; None where the model has no alignment head.
        """
        inputs = sequence.inputs
        if not self.text_width or not sequence.codes:
            return None
        prefix = inputs.ar_prefix(self.model)
        slot = sequence.slot
        self.cache.rewind(slot, len(prefix) - 1)
        text = inputs.own_text(prefix)
        reading = TextAttention(self.model, prefix, self.cache, slot, self._read, text=text)
        return reading.push(torch.tensor(sequence.codes))[0].cpu()

    def make_room(self, sequence: ArSequence) -> None:  # noqa: B027  # pages need it
        """Take the memory that a row needs for the next step, if it samples."""

    def close(self) -> None:  # noqa: B027
        """Free what would hold memory in a circle; the runner is of no more use."""

    def _enter(self, sequence: ArSequence) -> None:
        """Note that a sequence has a row from now on."""
        self._rows.add(sequence)
        sequence.generation += 1
        self.table.host[sequence.slot, HostColumn.PARTNER] = sequence.partner
        self._write_row(sequence)

    def _leave(self, sequence: ArSequence) -> None:
        """Note that it has none any more; its slots may be others' next."""
        self._rows.discard(sequence)
        self._plain.discard(sequence)
        sequence.generation += 1
        for condition in sequence.conditions:
            self.table.host[condition.slot, HostColumn.PARTNER] = condition.slot

    def _write_row(self, sequence: ArSequence) -> None:
        """Write the knobs of a row, if it is plain, as it begins and as its text grows."""
        inputs = sequence.inputs
        params = inputs.row_params
        if is_plain(params) and not inputs.trace:  # which tells what the operators did
            self._plain.add(sequence)
            record = plain_row(params, self.sampler.vocab_size)
            self.plain[sequence.slot] = record.to(self.plain.device, non_blocking=True)

    def _cache_changed(self, slot: int) -> None:  # noqa: B027
        """Note that the cache holds something else in a slot."""

    def _give_back(self, slots: Sequence[int]) -> None:
        for slot in slots:
            self.cache.rewind(slot, 0)
        self._free = sorted([*self._free, *slots])

    def _avoided(self, sequence: ArSequence) -> Avoided | None:
        """Return what is added to the logits of a sequence's next frames."""
        if sequence.backtracker is None:
            return None
        return sequence.backtracker.avoided(len(sequence.codes), self.sampler.vocab_size)

    def _prefill(
        self,
        prefixes: PrefixCache,
        inputs: UtteranceSpec,
        place: int,
        prefix: Prefix,
        slot: int,
        *,
        old: int | None = None,
    ) -> GuidanceBranch:
        """Run a prefix of an utterance, 0 with the text and 1 without, into an empty slot."""
        # Or in place of another of ``old`` positions, which has frames behind it.
        wanted = SlotPrefix(prefix, slot, (inputs.voice, inputs.null)[place])
        read = prefixes.read if old is None else partial(prefixes.replace, old=old)
        ((hidden, queries),) = read([wanted], self.cache, self._read)
        self.first_hidden[slot] = hidden[-1]
        self.first_attention[:, slot] = torch.nan
        if place == 0:
            if is_on("entropix", inputs.params):
                self.first_attention[:, slot] = self._statistics(queries[0, -1], slot)
            if self.text_width and follows_text(inputs.params):
                self.first_query[slot] = self._aligned(queries[:, -1:])[0]
                self._read_keys(slot, inputs.own_text(prefix))
        return GuidanceBranch(slot, len(prefix), prefix.response_start)

    def _run_with_text(
        self,
        prefixes: PrefixCache,
        inputs: UtteranceSpec,
        later: deque[UtteranceSpec],
        branch: GuidanceBranch,
        progress: TextProgress | None,
    ) -> tuple[UtteranceSpec, GuidanceBranch]:
        """Run the frames of an earlier take but the last, each with the text that it knew."""
        assert inputs.kept is not None
        codes = ar_codes_of(inputs.kept)
        done = 0
        for growth in inputs.kept.growths:
            branch = self._run_kept(branch, codes[:growth], done, progress)
            done = growth
            inputs = later.popleft()
            branch = self._read_anew(prefixes, inputs, branch, max(0, growth - 1))
            if progress is not None:
                progress.grow(inputs)
        return inputs, self._run_kept(branch, codes, done, progress)

    def _run_kept(
        self,
        branch: GuidanceBranch,
        codes: Tensor,
        done: int = 0,
        progress: TextProgress | None = None,
    ) -> GuidanceBranch:
        """Run frames ``[T]`` of an earlier take but the last, of which some were run before."""
        if done == len(codes):
            return branch
        slot = branch.slot
        fed = max(0, done - 1)
        hidden = self.first_hidden[slot, None] if not done else self.first_hidden[:0]
        asked = self.first_query[slot, None] if not done else self.first_query[:0]
        if len(codes) - 1 > fed:
            frames = self.model.frames(codes[fed:-1], branch.start + fed)
            ((after, queries),) = self._read([frames], [(self.cache, slot)])
            hidden = torch.cat([hidden, after])
            asked = torch.cat([asked, self._aligned(queries)])
        if progress is not None and len(asked):
            text = torch.stack([self._text_attention(one, slot) for one in asked]).cpu().numpy()
            for (frame,) in MonotonicPath.ahead([progress.path], text[:, None]):
                progress.path.append(frame)
        logits = sanitise(self.model.logits(hidden[:, : self.model.config.width], 0))
        nats = log_prob_of(logits, codes[done:].to(logits.device)).tolist()
        return replace(branch, logprobs=[*branch.logprobs, *nats])

    def _read_anew(
        self, prefixes: PrefixCache, inputs: UtteranceSpec, branch: GuidanceBranch, frames: int
    ) -> GuidanceBranch:
        """Put a prefix with more text before so many frames, whose keys and values stay."""
        slot = branch.slot
        self.cache.rewind(slot, branch.length + frames)
        prefix = inputs.ar_prefix(self.model)
        read = self._prefill(prefixes, inputs, 0, prefix, slot, old=branch.length)
        return replace(branch, length=read.length, start=read.start)

    def _aligned(self, queries: Tensor) -> Tensor:
        """Return the queries ``[R, head_dim]`` of the alignment head among those of `taps`."""
        head = self.model.config.alignment
        return queries[0, :, 0] if head is None else queries[1, :, head.head].float()

    def _read_keys(self, slot: int, text: slice) -> None:
        """Keep the keys of the alignment head of the symbols of a slot's text."""
        head = self.model.config.alignment
        config = self.model.config
        assert head is not None
        group = config.heads // config.kv_heads
        keys = self.cache.keys_of(head.layer, slot)[head.head // group, text].float()
        self.text_keys[slot] = 0.0
        self.text_keys[slot, : len(keys)] = keys * config.head_dim**-0.5
        self.text_bias[slot] = -torch.inf
        self.text_bias[slot, : len(keys)] = 0.0

    def _text_attention(self, query: Tensor, slot: int) -> Tensor:
        """Return the attention ``[W]`` of a query of the alignment head to a slot's text."""
        return torch.addmv(self.text_bias[slot], self.text_keys[slot], query).softmax(0)

    def _text_progress(self, inputs: UtteranceSpec) -> TextProgress | None:
        """Return how far an utterance has spoken its text; None if nobody asks."""
        head = self.model.config.alignment
        if head is None or not follows_text(inputs.params):
            return None
        return TextProgress(inputs, self.text_width, head.lead_frames)

    def _statistics(self, query: Tensor, slot: int) -> Tensor:
        """Return the statistics ``[4]`` of the attention of a slot's last query."""
        keys = self.cache.keys_of(-1, slot)
        count = torch.full((1,), keys.shape[1], device=keys.device)
        return attention_statistics(query[None], keys[None], count)[:, 0]

    def _copied(self, condition: GuidanceBranch, slot: int) -> GuidanceBranch:
        """Copy a prefix to another slot."""
        self.cache.fork(condition.slot, slot)
        for first in (
            self.first_hidden, self.first_attention.T, self.first_query, self.text_keys,
            self.text_bias,
        ):  # fmt: skip
            first[slot] = first[condition.slot]
        return replace(condition, slot=slot)


def _row(
    inputs: UtteranceSpec, candidate: int = 0, sampled: SampledCodes | None = None
) -> RowInput:
    """Return what the sampler is told of a row."""
    return RowInput(
        inputs.row_params,
        inputs.seed,
        inputs.max_frames,
        inputs.utterance,
        candidate,
        None if inputs.prompt is None else inputs.prompt[:, 0],
        inputs.silent,
        sampled,
    )
