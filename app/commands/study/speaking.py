"""The takes of a study spoken by a server or in this process, judged, and kept in a file."""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx2
import numpy as np

from app.audio.containers import encode_file, wav_header
from app.commands.batch import post_when_free
from app.commands.errors import CommandError, CommandFailed
from app.commands.study.grid import StudyTake
from app.commands.study.measures import measure_speech
from samplers.knobs.presets import AUTO

_TRIAL_HZ = 24_000  # of the tone of a trial, which lasts a second

Row = dict[str, Any]
"""Of a take: `key`, `model`, `codes`, `finish`, and `measures` by their names."""

StudyRows = list[dict[str, Any]]


class TakesFile:
    """The JSON Lines file of the takes that are done, in order, perhaps of several models."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rows = dict[tuple[str, str], Row]()
        lines = path.read_text("utf-8").splitlines(keepends=True) if path.exists() else []
        if lines and not lines[-1].endswith("\n"):  # the run was ended while it was written
            path.write_text("".join(lines[:-1]), "utf-8")
            lines.pop()
        for row in map(json.loads, lines):
            self._rows[row["key"], row["model"]] = row

    def add(self, row: Row) -> None:
        """Append a take."""
        self._rows[row["key"], row["model"]] = row
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def find(self, take: StudyTake, model: str) -> Row | None:
        """Return the row of a take of a model, or None."""
        return self._rows.get((take.key, model))


class JudgeCommand:
    """A command, in words of a shell, that answers a take, a line of JSON, with numbers."""

    def __init__(self, command: str) -> None:
        self._command = command
        self._turn = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None

    async def judge(self, take: Mapping[str, Any]) -> dict[str, float]:
        """Return what the command says of a take, which is an object of JSON.

        Raises CommandFailed if it ended, or what it wrote are no numbers.
        """
        async with self._turn:
            if self._process is None:
                pipe = asyncio.subprocess.PIPE
                self._process = await asyncio.create_subprocess_shell(
                    self._command, stdin=pipe, stdout=pipe
                )
            process = self._process
            assert process.stdin is not None
            assert process.stdout is not None
            with suppress(ConnectionError):  # it has ended, and what it wrote says so
                process.stdin.write(json.dumps(take).encode() + b"\n")
                await process.stdin.drain()
            line = await process.stdout.readline()
        try:
            return {str(name): float(value) for name, value in json.loads(line).items()}
        except (ValueError, AttributeError, TypeError) as error:
            wrote = f"wrote {line.decode(errors='replace')!r}" if line else "ended"
            raise CommandFailed(f"judge: {self._command!r} {wrote}{self._cure}") from error

    @property
    def _cure(self) -> str:
        """What a judge of ours may lack."""
        ours = "training." in self._command
        return "; it needs `scripts/install evaluate`, and .venv/bin/python" if ours else ""

    async def close(self) -> None:
        """End the command."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            await self._process.wait()


class StudySession:
    """Speaks and judges takes; those that are in the folder are not spoken again.

    The folder has `takes.jsonl`, `sounds` and, while judges are asked, what they hear.
    ``judges`` are commands; ``on_progress`` is called with how many takes are done, and of how
    many.
    """

    def __init__(
        self,
        client: httpx2.AsyncClient,
        at_once: int,
        folder: Path,
        judges: Sequence[str],
        on_progress: Callable[[int, int], object],
    ) -> None:
        self._client = client
        self._turns = asyncio.Semaphore(at_once)
        self._folder = folder
        self._on_progress = on_progress
        self._judges = [JudgeCommand(one) for one in judges]
        self._file = TakesFile(folder / "takes.jsonl")
        self._sha256 = ""
        self._times = False
        self._tried = False
        self.presets: dict[str, dict[str, Any]] = {}

    async def open(self) -> None:
        """Ask which model speaks; raises CommandFailed if the server does not say."""
        answers = [await self._client.get(path) for path in ("/ready", "/v1/presets")]
        for answer in answers:
            if answer.is_error:
                raise CommandFailed(f"url: {_problem(answer)}")
        ready, presets = (answer.json() for answer in answers)
        self._sha256 = ready["model_sha256"]
        self._times = ready["word_times"]
        self.presets = {one["id"]: one["sets"] for one in presets["presets"]}

    async def close(self) -> None:
        """End the judges."""
        for judge in self._judges:
            await judge.close()

    async def speak(self, takes: Sequence[StudyTake]) -> StudyRows:
        """Return a flat row for each take, in order."""
        missing = [take for take in takes if self._file.find(take, self._model(take)) is None]
        if missing:
            await self._try_judges()
        done = len(takes) - len(missing)
        self._on_progress(done, len(takes))

        async def speak(take: StudyTake) -> None:
            nonlocal done
            async with self._turns:
                row = await self._spoken(take)
            self._file.add({"key": take.key, "model": self._model(take), **row})
            done += 1
            self._on_progress(done, len(takes))

        try:
            async with asyncio.TaskGroup() as group:
                for take in missing:
                    group.create_task(speak(take))
        except* CommandError as errors:
            raise errors.exceptions[0] from None
        rows = [self._file.find(take, self._model(take)) for take in takes]
        return table_of(takes, [row for row in rows if row is not None])

    async def _try_judges(self) -> None:
        """Ask each judge about a tone, once: one that cannot answer is found before any take."""
        if self._tried or not self._judges:
            return
        self._tried = True
        tone = np.sin(np.arange(_TRIAL_HZ) * (2 * np.pi * 220 / _TRIAL_HZ)) * 0.1
        sound = self._folder / "trial.wav"
        sound.write_bytes(encode_file(tone.astype(np.float32), "wav", _TRIAL_HZ))
        for judge in self._judges:
            asked = {"text": "Hello.", "sound": str(sound), "setting": {}, "trial": True}
            await judge.judge(asked)
        sound.unlink()

    def sounds(self, takes: Sequence[StudyTake]) -> list[tuple[str, bytes]]:
        """Return title and MP3 of the takes that were kept to be heard."""
        kept = [(take, self._sound(take)) for take in takes if self._is_heard(take)]
        found = {path: take for take, path in kept if path.exists()}
        return [
            (f"{json.dumps(dict(take.setting))} {take.text}", path.read_bytes())
            for path, take in found.items()
        ]

    def _model(self, take: StudyTake) -> str:
        """Return a name of all that a take depends on but its request: weights and its preset."""
        preset = self.presets.get(take.body.get("preset", AUTO), {})
        described = json.dumps([self._sha256, preset], sort_keys=True)
        return sha256(described.encode()).hexdigest()

    def _is_heard(self, take: StudyTake) -> bool:
        """Return whether a take's sound is kept: one of each setting."""
        return take.seed == 0 and take.first

    def _sound(self, take: StudyTake) -> Path:
        name = sha256(f"{self._model(take)} {take.key}".encode()).hexdigest()[:16]
        return self._folder / "sounds" / f"{name}.mp3"

    async def _spoken(self, take: StudyTake) -> Row:
        """Speak and judge a take."""
        form = {"response_format": "pcm", "stream": False, "trace": True, "priority": "background"}
        body = take.body | form | ({"timestamps": "word"} if self._times else {})
        try:
            answer = await post_when_free(self._client, "/v1/audio/speech", body)
            if answer.is_error:
                raise CommandError(f"{take.key}: {_problem(answer)}")
            name = answer.headers["x-request-id"]
            report = (await self._client.get(f"/v1/audio/speech/{name}")).json()
        except httpx2.TransportError as error:
            raise CommandFailed(f"url: {error or type(error).__name__}") from error
        rate_hz = int(answer.headers["x-sample-rate"])
        samples = (np.frombuffer(answer.content, "<i2") / 32768.0).astype(np.float32)
        measures = measure_speech(report, samples, rate_hz)
        if self._is_heard(take):
            path = self._sound(take)
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(encode_file(samples, "mp3", rate_hz))
        if self._judges:
            sound = self._folder / f"{name}.wav"
            sound.write_bytes(wav_header(rate_hz, len(answer.content)) + answer.content)
            asked = {"text": take.text, "sound": str(sound), "setting": take.setting}
            for judge in self._judges:
                measures |= await judge.judge(asked)
            sound.unlink()
        return {
            "codes": answer.headers["x-codes-sha256"],
            "finish": report["finish_reason"],
            "idle": answer.headers.get("x-ignored", ""),
            "measures": measures,
        }


def _problem(answer: httpx2.Response) -> str:
    """Return what an answer says is wrong."""
    return str(answer.json()["error"]["message"])


def table_of(takes: Sequence[StudyTake], rows: Sequence[Mapping[str, Any]]) -> StudyRows:
    """Return a flat row for each take: what varies, text, voice, seed, codes and measures."""
    knobs = dict.fromkeys(name for take in takes for name in take.setting)
    measures = dict.fromkeys(name for row in rows for name in row["measures"])
    return [
        {
            **{name: take.setting.get(name) for name in knobs},
            "text": take.text,
            "voice": take.voice,
            "seed": take.seed,
            "codes_sha256": row["codes"],
            "finish": row["finish"],
            "ignored": row["idle"],
            **{name: row["measures"].get(name) for name in measures},
        }
        for take, row in zip(takes, rows, strict=True)
    ]
