"""`valle-serve batch`: speak the requests of a file."""

import json
import sys
from pathlib import Path

from pydantic import BaseModel, Field
from pydantic_settings import CliPositionalArg

from app.commands.errors import CommandError, CommandFailed


class BatchCommand(BaseModel):
    """Speak the requests of a file: a JSON object a line, as for OpenAI's batches.

    What was done is kept: the same command continues an interrupted batch. The model and the rest
    are settings, TTS_MODEL and so on.
    """

    file: CliPositionalArg[Path] = Field(
        description='Lines of {"custom_id": ..., "url": "/v1/audio/speech", "body": {...}}.'
    )
    out: CliPositionalArg[Path] = Field(description="Folder of the audio files and reports.")
    workers: int = Field(
        0, ge=0, description="Workers on a cluster of Ray; 0 speaks in this process."
    )
    gpus: float = Field(0.0, ge=0, description="GPUs of a worker.")
    at_once: int = Field(8, ge=1, le=64, description="Lines that a worker speaks at a time.")
    engine: str = Field("", description="Import path of another engine, for tests.")

    def cli_cmd(self) -> None:
        """Speak what is missing, with a line of progress on stderr.

        Raises:
            CommandError: The file cannot be read, or is no batch.
            CommandFailed: Some lines failed; errors.jsonl has them.
        """
        from app.cluster.batch import BatchError, OneProcess, Output, Workers, read_lines, run_batch

        try:
            lines = read_lines(self.file)
            output = Output(self.out)
        except (BatchError, OSError, UnicodeDecodeError) as error:
            raise CommandError(f"{self.file}: {error}") from error
        workers: Workers = OneProcess(self.engine, self.at_once)
        if self.workers:
            import os

            from app.cluster.ray_workers import RayWorkers

            passed = {name: value for name, value in os.environ.items() if name.startswith("TTS_")}
            workers = RayWorkers(
                self.workers,
                gpus=self.gpus,
                engine=self.engine,
                at_once=self.at_once,
                environment=passed,
            )
        good, bad = run_batch(lines, output, workers, self._tell)
        print(json.dumps({"completed": good, "failed": bad, "total": len(lines)}))
        if bad:
            raise CommandFailed

    def _tell(self, done: int, of: int) -> None:
        progress = json.dumps({"completed": done, "total": of})
        (self.out / "progress.json").write_text(progress + "\n", "utf-8")
        end = "\r" if sys.stderr.isatty() and done < of else "\n"
        print(f"{done} of {of} lines", end=end, file=sys.stderr, flush=True)
