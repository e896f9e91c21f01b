"""Architecture configurations of language models and codecs, as their checkpoints state them.

They are frozen, refuse unknown fields and never read the environment.
"""

import re
from math import prod
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

Segment = Literal["lang", "level", "prom", "phn", "resp"]
MaskKind = Literal["causal", "block_causal", "full"]
KvCacheDtype = Literal["auto", "int8"]
"""Number format of keys and values in the pages of a GPU; auto: that of the weights."""
CodeSums = Literal["inclusive", "exclusive", "none"]

ReaderName = Literal["builtin", "espeak", "lifeiteng", "vall_e_x", "vall_e_x_reference"]
"""What turns texts into a model's phonemes: `models.text.front_end`."""

# Of phonemes; symbols follow from 3 on
UNKNOWN_ID = 0
BOS_ID = 1
EOS_ID = 2
LENGTH_TOKENS = 11  # of length prediction: ten digits and the stop token


def first_problem(error: ValidationError, of: str = "the whole") -> str:
    """Return the first of pydantic's problems, `field: message`; ``of`` stands for no field."""
    problem = error.errors()[0]
    if problem["type"] == "json_invalid":
        return f"it is not JSON: {problem['ctx']['error']}"
    field = ".".join(map(str, problem["loc"])) or of
    return f"{field}: {problem['msg'].removeprefix('Value error, ')}"


class _Config(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class AlignmentHead(_Config):
    """The attention head of level 0 that shows which phoneme is being spoken."""

    layer: int = Field(ge=0)
    head: int = Field(ge=0, description="Among the query heads.")
    lead_frames: int = Field(
        0, ge=0, le=75, description="How many frames it is ahead of the sound."
    )

    @classmethod
    def parse(cls, name: str) -> Self:
        """Return the head of a name such as `3.2+3`: layer 3, head 2, 3 frames ahead."""
        layer, head, lead = map(int, re.findall(r"\d+", name + "+0")[:3])
        return cls(layer=layer, head=head, lead_frames=lead)


class NullHeadConfig(_Config):
    """The head that predicts the null condition's logits of level 0: `models.null_head`."""

    layers: tuple[Annotated[int, Field(ge=0)], ...] = Field(
        (), description="Whose outputs it reads beside the last hidden state."
    )
    hidden: int = Field(gt=0)
    rank: int = Field(gt=0, description="Of the difference to the logits of the output head.")
    max_strength: float = Field(
        gt=1, allow_inf_nan=False, description="Highest `cfg_strength` that it was trained for."
    )


class BlockSpec(_Config):
    """What a layer of the stack computes, beside its sizes."""

    bias: bool = Field(False, description="Whether its matrices have biases.")
    ffn: Literal["gated", "plain"] = "gated"
    positions: Literal["rotary", "added"] = Field(
        "rotary", description="Rotate queries and keys, or add sines on entry to the stack."
    )
    gains: Literal["shared", "by_level"] = Field(
        "shared", description="Whether each level has its own norms and biases, or all the same."
    )

    @model_validator(mode="after")
    def _is_computed(self) -> Self:
        if self.gains == "by_level" and not self.bias:
            raise ValueError("gains by level need biases")
        return self


class StackSize(_Config):
    """Sizes of a stack."""

    width: int = Field(gt=0)
    layers: int = Field(gt=0, le=1024)
    heads: int = Field(gt=0)
    ffn: int = Field(gt=0)


class ModelConfig(_Config):
    """Configuration of an AR+NAR language model over codec codes."""

    name: str = Field("unnamed", min_length=1, description="What requests call the model.")
    width: int = Field(gt=0, description="D, the width of the residual stream.")
    layers: int = Field(gt=0, le=1024)
    heads: int = Field(gt=0, description="Query heads; head_dim is width / heads.")
    kv_heads: int = Field(gt=0, description="Key and value heads; divides heads.")
    ffn: int = Field(gt=0, description="Hidden width of the feed-forward.")
    activation: Literal["gelu", "silu", "relu"] = Field(
        "gelu", description="ReLU is that of a plain feed-forward, the others are of a gated one."
    )
    block: BlockSpec = BlockSpec()
    nar_stack: StackSize | None = Field(
        None,
        description="Of the stack of levels 1 and up, which has tables of its own; None: there is"
        " one stack for all levels.",
    )
    rope_theta: float = Field(10_000.0, gt=0, allow_inf_nan=False)
    norm_eps: float = Field(1e-6, gt=0, allow_inf_nan=False)

    levels: int = Field(8, gt=0, le=64, description="K, the RVQ levels; 0 is autoregressive.")
    codes: int = Field(
        1024, gt=0, le=32_767, description="V, codes a level; the stop token is this number."
    )
    phonemes: tuple[str, ...] = Field(description="Symbols, in the order of their ids from 3 on.")
    max_phonemes: int = Field(
        250, gt=0, description="Longest utterance it was trained on; longer sentences are split."
    )
    last_marks: str = Field(
        "",
        description="Marks that the utterances of its training ended with: what ends with another "
        "is given a full stop. Empty: any mark.",
    )
    phoneme_vocabulary: dict[str, int] = Field(
        {},
        description="Every name and its id, where phonemes are merged by byte pairs and names may "
        "share an id; empty: each symbol stands for itself.",
    )
    reader: ReaderName | None = Field(
        None, description="None: espeak where there is a vocabulary, else that of the built-in."
    )
    text_marks: bool = Field(
        True, description="Whether the ids of a text begin and end with marks."
    )
    phonemes_by_language: bool = Field(
        False,
        description="Each language has its own rows of the phoneme table, those of an id"
        " `phoneme_rows` apart.",
    )
    languages: tuple[str, ...] = Field(("en",), description="In the order of their ids.")
    language_rows: int = Field(
        0,
        ge=0,
        description="Rows of the language table if fewer than languages; those past the end share "
        "the last one. 0: a row each.",
    )
    segments: tuple[Segment, ...] = ("lang", "level", "prom", "phn", "resp")
    separators: bool = Field(True, description="Whether a learned vector ends each segment.")
    text_mask: Literal["causal", "full"] = Field(
        "causal", description="Whether phonemes of level 0 see those after them; full: all do."
    )
    prompt: Literal["segment", "response"] = Field(
        "segment",
        description="Where the voice prompt is: a segment of its own, or the beginning of the"
        " response, to which belongs what it says.",
    )
    start_token: bool = Field(
        False, description="Whether a row of its own begins level 0's frames; of prompt=response."
    )
    nar_prompt_text: bool = Field(
        True, description="Whether the NAR levels read what the prompt says; of prompt=response."
    )
    frames_a_symbol: int | None = Field(
        None, gt=0, description="Most frames for each id of a text, that of the prompt included."
    )
    nar_mask: MaskKind = "block_causal"
    block_frames: int = Field(15, gt=0, description="Response frames in a block of block_causal.")
    unified_positions: bool = Field(
        False, description="Positions count through; otherwise each segment counts from 0."
    )
    prompt_sums: CodeSums | Literal["all"] = Field(
        "inclusive",
        description="Which levels of the prompt level q is predicted from: all below q, all but "
        "the last of those, that one alone, or all that there are.",
    )
    prompt_all_levels: bool = Field(
        False,
        description="A level is also predicted from the prompt's other levels that have a table, "
        "through a projection.",
    )
    response_sums: CodeSums = Field("inclusive", description="The same, of the response.")
    masked_level_0: bool = Field(
        False, description="Can also predict level 0 in masked passes, and its length."
    )
    max_prompt_frames: int = Field(
        225, ge=0, description="Longest voice prompt it was trained with, in frames; 0 is none."
    )
    shared_tables: bool = Field(
        False,
        description="The prompt uses the response's embedding tables of levels 1 and up.",
    )
    has_null_condition: bool = Field(False, description="Trained for guidance by dropped text.")
    nar_has_null_condition: bool = Field(
        False, description="The same for the NAR levels: prompt and text dropped together."
    )
    null_head: NullHeadConfig | None = Field(
        None, description="Guides level 0 in one row; None: a guided sequence takes two."
    )
    preset: str = Field("default", description="Sampling preset that `auto` resolves to.")
    alignment: AlignmentHead | None = Field(
        None, description="What timings are read from; None if no head is known to align."
    )

    @model_validator(mode="after")
    def _divides(self) -> Self:
        for size in (self, self.nar_stack or self):
            if size.width % size.heads or (size.width // size.heads) % 2:
                raise ValueError(
                    f"width {size.width} must be heads {size.heads} times an even number"
                )
        if self.heads % self.kv_heads:
            raise ValueError(f"kv_heads {self.kv_heads} must divide heads {self.heads}")
        if self.segments[-1] != "resp" or len(set(self.segments)) != len(self.segments):
            raise ValueError(f"segments {self.segments} must be distinct and end with resp")
        own_stacks = self.nar_stack is not None
        if own_stacks != (self.block.gains == "by_level"):
            raise ValueError("gains by level are those of a stack of levels 1 and up")
        if (self.block.ffn == "plain") != (self.activation == "relu"):
            raise ValueError(
                f"{self.activation} is no activation of a {self.block.ffn} feed-forward"
            )
        if self.prompt == "response" and (self.segments != ("phn", "resp") or self.separators):
            raise ValueError("a prompt that begins the response has no segments but phn and resp")
        if own_stacks and (self.prompt != "response" or self.masked_level_0):
            raise ValueError("two stacks begin the response with the prompt, and draw no mask")
        if self.text_mask == "full" and self.prompt != "response":
            raise ValueError("a full text_mask needs a prompt that begins the response")
        if self.block.positions == "added" and self.nar_mask != "full":
            raise ValueError("added positions need the full nar_mask")
        self._check_null_head()
        head = self.alignment
        if head is not None and (head.layer >= self.layers or head.head >= self.heads):
            raise ValueError(
                f"alignment: layer {head.layer}, head {head.head} does not exist; there are"
                f" {self.layers} layers of {self.heads} heads, numbered from 0"
            )
        return self

    def _check_null_head(self) -> None:
        head = self.null_head
        if head is None:
            return
        if not self.has_null_condition:
            raise ValueError("a null head predicts a null condition, and there is none")
        if any(layer >= self.layers for layer in head.layers):
            raise ValueError(
                f"null_head: of layers {head.layers} not all exist; there are {self.layers},"
                " numbered from 0"
            )
        if [*head.layers] != sorted({*head.layers}):
            raise ValueError(f"null_head: layers {head.layers} must be ascending")

    @property
    def one_row_strength(self) -> float:
        """Highest strength at which guidance of level 0 takes one row; 1 is no guidance."""
        return 1.0 if self.null_head is None else self.null_head.max_strength

    @property
    def head_dim(self) -> int:
        """Width of one attention head."""
        return self.width // self.heads

    @property
    def nar(self) -> "ModelConfig":
        """The configuration with the sizes of the stack of levels 1 and up."""
        if self.nar_stack is None:
            return self
        sizes = self.nar_stack.model_dump()
        return self.model_copy(update={**sizes, "kv_heads": self.nar_stack.heads})

    @property
    def phoneme_rows(self) -> int:
        """Rows of the phoneme table in one language."""
        return EOS_ID + 1 + len(self.phonemes)

    @property
    def stop_token(self) -> int:
        """Id of the token that ends an utterance in level 0."""
        return self.codes

    @property
    def mask_token(self) -> int:
        """Id of a masked frame of level 0."""
        return self.codes

    @property
    def phoneme_ids(self) -> dict[str, int]:
        """The id of each phoneme symbol."""
        return self.phoneme_vocabulary or {
            symbol: number for number, symbol in enumerate(self.phonemes, start=EOS_ID + 1)
        }


class CodecConfig(_Config):
    """Configuration of an EnCodec codec: SEANet, an LSTM, residual vector quantisation."""

    architecture: Literal["encodec"] = "encodec"
    sample_rate_hz: int = Field(24_000, ge=8_000, le=192_000)
    ratios: tuple[Annotated[int, Field(gt=0, le=64)], ...] = Field(
        (8, 5, 4, 2), min_length=1, description="Upsampling factors, decoder order."
    )
    filters: int = Field(32, gt=0)
    dimension: int = Field(128, gt=0, description="Width of the latent that is quantised.")
    lstm_layers: int = Field(2, ge=0)
    levels: int = Field(8, gt=0)
    codes: int = Field(1024, gt=0)
    pad_mode: Literal["reflect", "constant"] = Field(
        "reflect", description="Padding before the first sample; constant is zeros."
    )
    gain: float = Field(
        1.0, ge=1e-3, le=1e3, description="Speech is multiplied by this before encoding."
    )

    @property
    def hop(self) -> int:
        """Samples in a frame."""
        return prod(self.ratios)

    @property
    def frame_rate_hz(self) -> float:
        """Frames in a second."""
        return self.sample_rate_hz / self.hop


class SpectralCodecConfig(_Config):
    """Configuration of a codec that works at the frame rate, on one spectrum a frame.

    The encoder's input is log-mel spectra; the decoder shapes pulses and noise.
    """

    architecture: Literal["spectral"] = "spectral"
    sample_rate_hz: int = Field(24_000, ge=8_000, le=192_000)
    hop: int = Field(320, gt=0, description="Samples in a frame.")
    window: int = Field(1280, description="Samples of a frame's spectrum; a multiple of hop.")
    bands: int = Field(100, gt=0, description="Mel bands of the encoder's input.")
    dimension: int = Field(64, gt=0, description="Width of the latent that is quantised.")
    levels: int = Field(4, gt=0)
    codes: int = Field(1024, gt=0)
    width: int = Field(256, gt=0, description="Channels of encoder and decoder.")
    ffn: int = Field(768, gt=0, description="Hidden channels of a block.")
    encoder_layers: int = Field(3, gt=0)
    decoder_layers: int = Field(8, gt=0)
    pitch_width: int = Field(64, gt=0, description="Channels of what predicts the pitch.")
    gain: float = Field(1.0, gt=0, description="Speech is multiplied by this before encoding.")
    noise_gain: float = Field(
        1.0, ge=0, description="Noise is multiplied by this when decoding; training has all of it."
    )

    @model_validator(mode="after")
    def _overlaps(self) -> Self:
        if self.window % self.hop or self.window < 2 * self.hop:
            raise ValueError(f"window {self.window} must be hop {self.hop} twice or more often")
        return self

    @property
    def frame_rate_hz(self) -> float:
        """Frames in a second."""
        return self.sample_rate_hz / self.hop


class VocosConfig(_Config):
    """Configuration of a Vocos decoder; the defaults are the published one for EnCodec."""

    dimension: int = Field(128, description="Width of the codes' latent.")
    width: int = 384
    ffn: int = 1152
    layers: int = 8
    codes: int = 1024
    bandwidth_levels: tuple[int, ...] = Field(
        (2, 4, 8, 16), description="RVQ levels of each bit rate it was trained at, rising."
    )
    window: int = Field(1280, description="Samples of a frame's spectrum.")
    hop: int = Field(320, description="Samples in a frame.")

    @property
    def levels(self) -> int:
        """K, the RVQ levels of the highest bit rate."""
        return max(self.bandwidth_levels)


AnyCodecConfig = CodecConfig | SpectralCodecConfig
"""Configuration of a codec of either architecture."""
