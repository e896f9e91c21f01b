"""`valle-serve study`: what a knob does, over its values, sentences and seeds."""

import asyncio
import csv
import io
import json
import shlex
import sys
from collections.abc import Awaitable, Mapping, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Annotated, Any

from pydantic import BeforeValidator, Field
from pydantic_settings import CliPositionalArg, NoDecode

from app.commands.client import ServerOptions
from app.commands.errors import CommandError
from app.commands.output import write_file
from app.commands.sentences import SENTENCES, read_sentences
from app.commands.study import grid, page, race, speaking
from app.storage.preset_files import OF_REQUESTS
from samplers.knobs.features import what_needs
from samplers.knobs.presets import AUTO

Words = Annotated[list[str], NoDecode, BeforeValidator(grid.words_of)]
"""What the command line has joined by commas, of which some belong to the values."""


def _idle(knob: str, table: page.StudyTable) -> str:
    """Return why a knob acts in none of the takes that set it, or nothing."""
    rows = [row for row in table if row[knob] is not None]
    if not rows or any(knob not in row["ignored"].replace(",", " ").split() for row in rows):
        return ""
    return f"does nothing without {what_needs(knob)}"


class Study(ServerOptions):
    """Speak sentences with several values of knobs, and write a table and a page of curves.

    What was spoken is kept in the folder: the same command continues an interrupted study.
    """

    vary: CliPositionalArg[Words] = Field(
        description="Knobs with their values: top_p=0.8,0.9 or length_penalty=-2:2:9, which is nine"
        " values from -2 to 2."
    )
    out: Path = Field(Path("study"), description="Folder of takes.csv and index.html.")
    fixed: Words = Field(
        [], description="Other knobs that are set: preset=stable, or ban_tokens=[1,2]."
    )
    crossed: bool = Field(
        False, description="Every combination of the values, not one knob at a time."
    )
    sentences: Path | None = Field(
        None, description="Text file, one sentence a line; default a built-in list of 40."
    )
    count: int = Field(6, ge=1, description="How many of the sentences.")
    seeds: int = Field(1, ge=1, description="Takes of each sentence at each value.")
    voice: list[str] = Field([], description="Voices; default that of the server.")
    at_once: int = Field(8, ge=1, le=64, description="Takes that are spoken at a time.")
    judge: str = Field(
        "",
        description='A command that is given a line {"text": ..., "sound": PATH, "setting": ...}'
        ' for each take, and writes a line of numbers for each: {"wer": 0.1}. Several are a line'
        " each.",
    )
    find: str | None = Field(
        None,
        description="Race the combinations of the values for the least of this measure, as wer,"
        " against what --fixed says, and write preset.json if one is better for sure.",
    )
    limit: list[str] = Field(
        ["faults=0"], description="With --find: the most that the mean of a measure may be."
    )
    candidates: int = Field(
        16, ge=1, le=1024, description="With --find: how many of the combinations are raced."
    )
    unseen: Path | None = Field(
        None,
        description="With --find: text file of sentences on which the best is compared with what"
        " there is; default those after --count.",
    )

    def cli_cmd(self) -> None:
        """Speak what is missing, and write the files."""
        self.check_server()
        varied = grid.read_varied(self.vary)
        fixed = grid.read_fixed(self.fixed)
        try:
            texts = read_sentences(self.sentences or SENTENCES)
            unseen = read_sentences(self.unseen) if self.unseen else texts[self.count :]
            self.out.mkdir(parents=True, exist_ok=True)
        except (OSError, ValueError) as error:
            raise CommandError(f"sentences: {error}") from error
        if self.find and (not unseen or {*unseen} & {*texts[: self.count]}):
            raise CommandError("unseen: there are no sentences that the race does not hear")
        asyncio.run(self._run(varied, fixed, (texts[: self.count], unseen)))

    async def _run(
        self,
        varied: Mapping[str, Sequence[Any]],
        fixed: grid.Setting,
        texts: tuple[Sequence[str], Sequence[str]],
    ) -> None:
        settings = grid.settings_of(varied, crossed=self.crossed or self.find is not None)
        seen, unseen = (
            partial(grid.takes_of, fixed=fixed, texts=some, voices=self.voice or [None],
                    seeds=self.seeds)
            for some in texts
        )  # fmt: skip
        async with self.open_client(keep=4 * self.at_once) as client:
            judges = self.judge.splitlines()
            session = speaking.StudySession(client, self.at_once, self.out, judges, self._tell)
            try:
                await session.open()
                if self.find is None:
                    takes = seen(settings)
                    self._write([*varied], await session.speak(takes), session.sounds(takes))
                    return
                if len(settings) > self.candidates:
                    settings = Random(0).sample(settings, self.candidates)
                spoken = dict[str, grid.StudyTake]()

                def speak(takes: Sequence[grid.StudyTake]) -> Awaitable[page.StudyTable]:
                    spoken.update((take.key, take) for take in takes)
                    return session.speak(takes)

                goal = race.Goal.read(self.find, self.limit)
                found = await race.Race(speak, goal).run(settings, seen, unseen)
                takes = [*spoken.values()]
                table = await session.speak(takes)  # all are there by now
                self._write((), table, session.sounds(takes), found.lines)
                for line in found.lines:
                    print(line)
                self._write_preset(found, session.presets[fixed.get("preset", AUTO)] | {**fixed})
            finally:
                await session.close()

    def _write(
        self,
        knobs: Sequence[str],
        table: page.StudyTable,
        sounds: Sequence[tuple[str, bytes]],
        lines: Sequence[str] = (),
    ) -> None:
        """Write table, curves and page; a race has no curves, as its takes are not balanced."""
        text = io.StringIO()
        writer = csv.DictWriter(text, [*table[0]], lineterminator="\n")
        writer.writeheader()
        writer.writerows(table)
        write_file(self.out / "takes.csv", text.getvalue().encode(), "out")
        found = page.curves(table, knobs)
        study = page.Heading(shlex.join(["valle-serve", *sys.argv[1:]]), len(table), lines, sounds)
        write_file(self.out / "index.html", page.as_page(found, study).encode(), "out")
        for curve in found:
            idle = _idle(curve.knob, table)
            for fault in [idle] if idle else curve.faults:
                print(f"{curve.knob}: {fault}")
        print(f"{len(table)} takes: {self.out / 'index.html'}")

    def _write_preset(self, found: race.RaceResult, knobs: Mapping[str, Any]) -> None:
        """Write the file of the preset that was found; one of an earlier race is removed."""
        path = self.out / "preset.json"
        if found.setting is None:
            path.unlink(missing_ok=True)
            return
        knobs = {name: knob for name, knob in knobs.items() if name not in OF_REQUESTS}
        file = {"about": {"race": [*found.lines]}, "presets": {"found": {**knobs, **found.setting}}}
        write_file(path, (json.dumps(file, indent=1) + "\n").encode(), "out")
        print(f"preset `found`: {path}; the service loads it with TTS_PRESETS")

    def _tell(self, done: int, of: int) -> None:
        end = "\r" if sys.stderr.isatty() and done < of else "\n"
        print(f"{done} of {of} takes", end=end, file=sys.stderr, flush=True)
