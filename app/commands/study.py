"""`valle-serve study`: what a knob does, over its values, sentences and seeds."""

import asyncio
import csv
import io
import shlex
import sys
from pathlib import Path

from pydantic import BaseModel, Field, SecretStr
from pydantic_settings import CliPositionalArg

from app.commands.errors import CommandError
from app.commands.output import write_file
from app.commands.sentences import SENTENCES, read_sentences
from app.commands.studies import grid, page, speaking


class Study(BaseModel):
    """Speak sentences with several values of knobs, and write a table and a page of curves.

    What was spoken is kept in the folder: the same command continues an interrupted study.
    """

    vary: CliPositionalArg[list[str]] = Field(
        description="Knobs with their values: top_p=0.8,0.9 or length_penalty=-2:2:9, which is nine"
        " values from -2 to 2."
    )
    out: Path = Field(Path("study"), description="Folder of takes.csv, curves.md and index.html.")
    fixed: list[str] = Field([], description="Other knobs that are set: preset=stable.")
    crossed: bool = Field(
        False, description="Every combination of the values, not one knob at a time."
    )
    sentences: Path | None = Field(
        None, description="Text file, one sentence a line; default a built-in list of 40."
    )
    count: int = Field(6, ge=1, description="How many of the sentences.")
    seeds: int = Field(1, ge=1, description="Takes of each sentence at each value.")
    voice: list[str] = Field([], description="Voices; default that of the server.")
    url: str | None = Field(
        None, description="Use a running server; by default the model is loaded in this process."
    )
    key: SecretStr = Field(SecretStr(""), description="API key of the server.")
    at_once: int = Field(8, ge=1, le=64, description="Takes that are spoken at a time.")
    judge: list[str] = Field(
        [],
        description='A command that is given a line {"text": ..., "sound": PATH} for each take, and'
        ' writes a line of numbers for each: {"wer": 0.1}.',
    )
    engine: str = Field("", description="Import path of another engine, for tests.")

    def cli_cmd(self) -> None:
        """Speak what is missing, and write the files.

        Raises:
            CommandError: A flag is invalid, or the server refuses a take.
        """
        varied, fixed = grid.read_varied(self.vary), grid.read_fixed(self.fixed)
        settings = grid.settings_of(varied, crossed=self.crossed)
        try:
            texts = read_sentences(self.sentences or SENTENCES)[: self.count]
            self.out.mkdir(parents=True, exist_ok=True)
        except (OSError, ValueError) as error:
            raise CommandError(f"sentences: {error}") from error
        takes = grid.takes_of(settings, fixed, texts, self.voice or [None], self.seeds)
        server = speaking.StudyServer(
            self.url, self.key.get_secret_value(), self.engine, self.at_once
        )
        rows = asyncio.run(speaking.speak_takes(takes, server, self.out, self.judge, self._tell))
        table = speaking.table_of(takes, rows)
        text = io.StringIO()
        writer = csv.DictWriter(text, [*table[0]], lineterminator="\n")
        writer.writeheader()
        writer.writerows(table)
        write_file(self.out / "takes.csv", text.getvalue().encode(), "out")
        found = page.curves(table, [*varied])
        markdown = "\n\n".join(map(page.as_markdown, found)) + "\n"
        write_file(self.out / "curves.md", markdown.encode(), "out")
        about = shlex.join(["valle-serve", *sys.argv[1:]])
        html = page.as_page(found, about, len(takes))
        write_file(self.out / "index.html", html.encode(), "out")
        for curve in found:
            for fault in curve.faults:
                print(f"{curve.knob}: {fault}")
        print(f"{len(takes)} takes: {self.out / 'index.html'}")

    def _tell(self, done: int, of: int) -> None:
        end = "\r" if sys.stderr.isatty() and done < of else "\n"
        print(f"{done} of {of} takes", end=end, file=sys.stderr, flush=True)
