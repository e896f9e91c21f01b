"""Which recording makes the sound of a model."""

from app.engine.sound.recorded.chunked import ChunkedUtterance
from app.engine.sound.recorded.utterance import RecordedUtterance, why_eager
from app.engine.sound.recorded.voice_graph import VoiceGraph
from app.engine.sound.recorded.window_graph import WindowGraph
from app.engine.sound.recorded.windowed import WindowedUtterance
from app.engine.utterance import UtteranceInput
from models.checkpoints import SpeechModel
from models.cuda.graphs import LOW_PRIORITY, Recorder
from models.prefix_cache import PrefixCache
from models.stack.paged_cache import PagePool

SoundGraph = VoiceGraph | WindowGraph
"""What is recorded of a model: chunks, or windows where all frames see each other."""


def record_sound(speech: SpeechModel, pool: PagePool | None) -> SoundGraph:
    """Record a model's sound on its device; the steps of level 0 go first there.

    Args:
        speech: The model.
        pool: Of the finer levels' keys and values; None where nothing is cached.
    """
    recorder = Recorder(speech.model.separator.device, priority=LOW_PRIORITY)
    if pool is None:
        return WindowGraph(speech, record=recorder.record)
    return VoiceGraph(speech, pool, record=recorder.record)


def begin_recorded(
    speech: SpeechModel, inputs: UtteranceInput, prefixes: PrefixCache, graph: SoundGraph
) -> RecordedUtterance | None:
    """Begin an utterance whose sound is made by a recording; None if it cannot be.

    Args:
        speech: The graph's.
        inputs: What is spoken.
        prefixes: Cache of the keys and values that utterances share.
        graph: Makes its sound.
    """
    if why_eager(speech, inputs, graph.columns) is not None:
        return None
    stream = graph.streams.take()
    if stream is None:
        return None
    if isinstance(graph, WindowGraph):
        return WindowedUtterance(speech, inputs, prefixes, graph, stream)
    return ChunkedUtterance(speech, inputs, prefixes, graph, stream)
