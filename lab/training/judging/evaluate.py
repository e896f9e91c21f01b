"""Judge the voice: can it be understood, does it stop, how good does it sound, how fast is it?

    python -m lab.training.judging.evaluate --teacher --codec --model --count 100 --seeds 3
    python -m lab.training.judging.evaluate --codec --levels 1 2 8   # what fewer code levels cost
    python -m lab.training.judging.evaluate --model --voice bella --voice emma
    python -m lab.training.judging.evaluate --model --knobs cfg_strength=1 --knobs cfg_strength=2
    python -m lab.training.judging.evaluate --url http://127.0.0.1:8000
    python -m lab.training.judging.evaluate --wav-dir recordings/  # 0001-s0.wav: sentence 1, seed 0

One table (Markdown) goes to stdout and everything, each recording included, to a JSON file. The
figures carry 95 % intervals over sentences. Nothing may be tuned on these sentences.
"""

import argparse
import datetime
import json
import os
import platform
import re
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import soundfile
import torch
from tqdm import tqdm

from app.settings import BUILTIN_MODEL
from lab.training.cache import cache_folder
from lab.training.judging.judges import (
    HEARING_RATE_HZ,
    Dnsmos,
    VoiceJudge,
    Whisper,
    load_or_say,
    resample,
    whisper_folder,
)
from lab.training.judging.panel import Judgement, Panel
from lab.training.judging.report import report
from lab.training.judging.speakers import (
    BuiltIn,
    Recordings,
    RoundTrip,
    Samples,
    Server,
    Speaker,
    Speech,
    Teacher,
    recording_path,
)
from lab.training.speech.corpus import SAMPLE_RATE_HZ

SENTENCES = Path("../shared/data/harvard_dev.txt")
# What the similarity to the teacher's voice is measured against; none of the sentences judged.
PROMPT = "Good evening, and welcome. We are going to begin in a minute, so please take your seats."


def evaluate(
    speak: Speaker,
    texts: Sequence[str],
    seeds: int,
    panel: Panel,
    *,
    name: str = "",
    timed: bool = True,
    wav_folder: Path | None = None,
) -> list[Judgement]:
    """Let ``speak`` say every sentence with every seed from 0 on, and judge it.

    ``name`` is for the progress bar; ``timed`` says whether the time it takes to speak means
    anything.
    """
    if timed:
        speak(texts[0], 0)  # lazy set-up must not count as speaking
    judgements = []
    rounds = [(number, text, seed) for number, text in enumerate(texts, 1) for seed in range(seeds)]
    for number, text, seed in tqdm(rounds, desc=name, disable=not sys.stderr.isatty()):
        started = time.perf_counter()
        said = speak(text, seed)
        took_s = time.perf_counter() - started
        speech = said if isinstance(said, Speech) else Speech(said)
        if timed and speech.wall_s is None:
            speech = replace(speech, wall_s=took_s)
        if wav_folder is not None:
            wav_folder.mkdir(parents=True, exist_ok=True)
            soundfile.write(
                recording_path(wav_folder, number, seed), speech.samples, SAMPLE_RATE_HZ
            )
        judgements.append(panel.judge(text, seed, speech))
    return judgements


def read_sentences(path: Path, count: int) -> list[str]:
    """Return the first ``count`` sentences of a file with one a line.

    Raises ValueError if it has fewer, or has one twice.
    """
    lines = [line.strip() for line in path.read_text("utf-8").splitlines() if line.strip()]
    texts = lines[:count]
    if len(texts) < count or len(set(texts)) < count:
        raise ValueError(f"{path} has {len(set(texts))} different sentences, not {count}")
    return texts


def _assemble(args: argparse.Namespace, teacher: Teacher, prompt: Samples) -> Panel:
    ears = {name: Whisper(whisper_folder(name), args.threads) for name in args.judge}
    if args.words_only:
        return Panel(ears, teacher, as_read=args.as_read)
    audible = resample(prompt, SAMPLE_RATE_HZ, HEARING_RATE_HZ)
    return Panel(
        ears,
        teacher,
        load_or_say("DNSMOS", Dnsmos),
        load_or_say("speaker similarity", lambda: VoiceJudge(audible)),
        as_read=args.as_read,
    )


def _read_prompt(path: Path) -> Samples:
    samples, rate_hz = soundfile.read(path, dtype="float32")
    return resample(samples, rate_hz, SAMPLE_RATE_HZ)


def _speakers(
    args: argparse.Namespace, teacher: Teacher, texts: Sequence[str]
) -> Iterator[tuple[str, Speaker]]:
    """Yield each system that was asked for, loaded only when its turn comes."""
    if args.teacher:
        yield "teacher", teacher
    if args.codec:
        from models.checkpoints.builtin import load_codec

        codec = load_codec(args.weights)
        for levels in args.levels or [None]:
            name = "codec" if levels is None else f"codec, {levels} levels"
            yield name, RoundTrip(teacher, codec, levels)
    if args.model:
        yield from _model_systems(args)
    for url in args.url:
        yield url, Server(url)
    for folder in args.wav_dir:
        yield str(folder), Recordings(folder, texts)


def _model_systems(args: argparse.Namespace) -> Iterator[tuple[str, Speaker]]:
    """Yield the model as each voice, with each set of knobs."""
    model = BuiltIn(args.weights)
    for voice in args.voice or [None]:
        for chosen in args.knobs or [""]:
            knobs = parse_knobs(chosen)
            name = ", ".join(part for part in ("model", voice, chosen) if part)
            yield name, partial(model.speak_as, voice, knobs=knobs)


def parse_knobs(chosen: str) -> dict[str, object]:
    """Return the knobs in ``name=value,name=value``; a value is JSON, or else a word."""
    knobs: dict[str, object] = {}
    for pair in filter(None, chosen.split(",")):
        name, _, value = pair.partition("=")
        try:
            knobs[name] = json.loads(value)
        except json.JSONDecodeError:
            knobs[name] = value
    return knobs


def _circumstances(args: argparse.Namespace, panel: Panel) -> dict[str, Any]:
    """Return what somebody needs to know to repeat the run or to doubt it."""
    versions = {}
    for package in ("torch", "hibari-tts", "faster-whisper", "whisper-normalizer", "speechmos"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return {
        "command": " ".join(["python -m lab.training.judging.evaluate", *sys.argv[1:]]),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "sentences": args.sentences.name,
        "count": args.count,
        "seeds": args.seeds,
        "left_out": [
            what
            for what, judge in (("dnsmos", panel.dnsmos), ("similarity", panel.voice))
            if judge is None
        ],
        "versions": versions,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, python "
        f"{platform.python_version()}, {torch.get_num_threads()} torch threads",
        "load_average": os.getloadavg()[0],
    }


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    who = parser.add_argument_group("whose speech (at least one)")
    who.add_argument("--teacher", action="store_true", help="hibari-tts")
    who.add_argument("--codec", action="store_true", help="codec round trip of the teacher")
    who.add_argument("--levels", type=int, nargs="+", metavar="N", help="decode from the first N")
    who.add_argument("--model", action="store_true", help="the built-in model, by the engine")
    who.add_argument("--voice", action="append", help="the model as this one (default: its first)")
    who.add_argument(
        "--knobs", action="append", metavar="NAME=VALUE,...", help="the model with these"
    )
    who.add_argument(
        "--weights", type=Path, default=BUILTIN_MODEL, help="folder of codec and model"
    )
    who.add_argument("--url", action="append", default=[], help="a running server")
    who.add_argument("--wav-dir", action="append", type=Path, default=[], help="recorded WAVs")
    parser.add_argument("--sentences", type=Path, default=SENTENCES, help="one a line")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--judge", action="append", help="tiny.en (default), base, small or folder")
    parser.add_argument("--words-only", action="store_true", help="no DNSMOS, no similarity")
    parser.add_argument("--as-read", action="store_true", help="compare figures in words")
    parser.add_argument("--prompt", type=Path, help="the voice to be like (default: the teacher's)")
    parser.add_argument("--threads", type=int, default=1, help="of Whisper")
    parser.add_argument("--save-wavs", type=Path, metavar="FOLDER")
    parser.add_argument("--out", type=Path, help="JSON file (default: in the training cache)")
    args = parser.parse_args()
    args.judge = args.judge or ["tiny.en"]
    if not (args.teacher or args.codec or args.model or args.url or args.wav_dir):
        parser.error("choose whose speech: --teacher --codec --model --url URL --wav-dir FOLDER")
    return args


def main() -> None:
    """Judge the systems that were asked for."""
    args = _parse()
    texts = read_sentences(args.sentences, args.count)
    teacher = Teacher()
    prompt = _read_prompt(args.prompt) if args.prompt else teacher(PROMPT, 0)
    panel = _assemble(args, teacher, prompt)
    circumstances = _circumstances(args, panel)
    systems: dict[str, list[Judgement]] = {}
    notes = []
    for name, speak in _speakers(args, teacher, texts):
        folder = args.save_wavs / re.sub(r"[^\w.-]+", "-", name) if args.save_wavs else None
        timed = not isinstance(speak, Recordings)
        systems[name] = evaluate(
            speak, texts, args.seeds, panel, name=name, timed=timed, wav_folder=folder
        )
        if isinstance(speak, RoundTrip) and panel.voice is not None:
            ceiling = panel.voice.compare(
                resample(speak.pass_through(prompt).samples, SAMPLE_RATE_HZ, HEARING_RATE_HZ)
            )
            notes.append(f"Similarity of the prompt to itself through {name}: {ceiling:.3f}.")
    figures, table = report(systems)
    print("\n".join([table, *notes]))
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    out = args.out or cache_folder() / "evaluation" / f"{stamp}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    recordings = {name: [asdict(row) for row in rows] for name, rows in systems.items()}
    everything = {**circumstances, "notes": notes, "figures": figures, "recordings": recordings}
    out.write_text(json.dumps(everything, indent=1))
    print(f"written to {out}", file=sys.stderr)


if __name__ == "__main__":
    main()
