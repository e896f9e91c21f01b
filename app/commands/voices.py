"""`valle-serve voices`: manage the folder of uploaded voices.

Works on the files in TTS_VOICES; a running service sees changes at once. A voice that is added here
belongs to everybody, unless an owner is named.
"""

from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, Field
from pydantic_settings import CliApp, CliImplicitFlag, CliPositionalArg, CliSubCommand

from app.commands.errors import CommandError
from app.commands.output import print_status
from app.settings import Settings

if TYPE_CHECKING:
    from app.storage.voice_store import VoiceStore
    from models.voices.recording import Recording
    from models.voices.voice import BuiltinVoices

_OWNER = Field("", description="Owner, as named for an API key; default everybody.")


class Add(BaseModel):
    """Add a voice, by default for everybody."""

    name: CliPositionalArg[str] = Field(
        description="Id of the voice: lower-case letters, digits, _ and -; of Anna B it is anna-b."
    )
    file: CliPositionalArg[Path] = Field(
        description="WAV, FLAC, MP3, OGG, M4A or WebM with at least 1 s of speech."
    )
    consent: CliImplicitFlag[bool] = Field(
        False, description="Confirm that the speaker consents to speech in this voice."
    )
    language: str = Field("en", description="Language of the speaker.")
    transcript: str | None = Field(None, max_length=1000, description="Transcript of the audio.")
    start_s: float | None = Field(
        None, ge=0, le=600, description="Where in the recording to begin; default where it is best."
    )
    title: str = Field("", max_length=100, description="Display name.")
    description: str = Field("", max_length=1000, description="Description of the voice.")
    owner: str = _OWNER

    def cli_cmd(self) -> None:
        """Validate the recording and store the voice."""
        from app.storage.voice_store import NameTaken, StoreFull
        from models.text.published.tags import KNOWN, find_language
        from models.voices.voice import VoiceCard, named

        if not self.consent:
            raise CommandError("consent: give --consent to confirm that the speaker consents")
        settings = Settings()
        name, title = named(self.name, self.title)
        _check_name(name, settings)
        store = _store(settings)
        recording = _recording(self.file, self.start_s)
        language = find_language(self.language, "en", KNOWN) or self.language
        fields = self.model_dump(include=set(VoiceCard.model_fields), exclude={"language"})
        card = VoiceCard(language=language, **fields | {"title": title})
        try:
            voice = store.add(name, self.owner, card, recording)
        except NameTaken as error:
            raise CommandError(f"name: voice {name} exists already") from error
        except StoreFull as error:
            raise CommandError(f"owner: TTS_MAX_VOICES, {store.max_voices}, is reached") from error
        except OSError as error:
            raise CommandError(f"voices: {settings.voices}: {error.strerror}") from error
        except ValueError as error:
            raise CommandError(f"name: {error}") from error
        print(f"{name}: {recording.audio_s:.1f} s, {voice.audio}")
        for warning in recording.warnings:
            print_status(f"warning: {warning}")


class List(BaseModel):
    """List the built-in voices, and the uploaded ones of all owners."""

    def cli_cmd(self) -> None:
        """Print one line per voice."""
        settings = Settings()
        store = _store(settings)
        voices = [voice for owner in store.owners() for voice in store.of(owner)]
        damaged = [(name, owner) for owner in store.owners() for name in store.damaged(owner)]
        head = f"{'name':<24} {'kind':<8} {'owner':<16} {'seconds':>7} {'language':<8}"
        print(f"{head} {'added':<10} title")
        for voice in _builtin(settings):
            print(
                f"{voice.name:<24} {'builtin':<8} {'everybody':<16} {'':>7} {voice.language:<8}"
                f" {'':<10} {voice.title}"
            )
        for voice in voices:
            added = datetime.fromtimestamp(voice.created_at, UTC).date()
            print(
                f"{voice.name:<24} {'upload':<8} {voice.owner or 'everybody':<16}"
                f" {voice.audio_s or 0:>7.1f} {voice.language:<8} {added} {voice.title}"
            )
        for name, owner in damaged:
            kept = owner or "everybody"
            print(f"{name:<24} {'upload':<8} {kept:<16} damaged: remove it and add it again")


class Remove(BaseModel):
    """Delete an uploaded voice and its audio; speeches in progress are not affected."""

    name: CliPositionalArg[str] = Field(description="Id of the voice.")
    owner: str = _OWNER

    def cli_cmd(self) -> None:
        """Delete the voice."""
        settings = Settings()
        try:
            removed = _store(settings).remove(self.name, self.owner)
        except OSError as error:
            raise CommandError(f"voices: {settings.voices}: {error.strerror}") from error
        except ValueError as error:
            raise CommandError(f"owner: {error}") from error
        if not removed:
            owner = self.owner or "everybody"
            raise CommandError(f"name: {owner} has no uploaded voice {self.name!r}")
        print(f"{self.name}: deleted")


class VoicesCommand(BaseModel):
    """Add, list and delete uploaded voices in the folder that TTS_VOICES names."""

    add: CliSubCommand[Add] = Field(description="Add a voice.")
    list: CliSubCommand[List] = Field(description="List all voices.")
    remove: CliSubCommand[Remove] = Field(description="Delete a voice and its audio.")

    def cli_cmd(self) -> None:
        """Run the subcommand."""
        CliApp.run_subcommand(self, cli_exit_on_error=False)


def _store(settings: Settings) -> "VoiceStore":
    from app.storage.voice_store import open_voice_store

    return open_voice_store(settings.voices, settings.max_voices, earlier=settings.earlier_voices)


def _builtin(settings: Settings) -> "BuiltinVoices":
    """Return the voices that ship with the model."""
    from models.voices.voice import BuiltinVoices, VoiceError

    try:
        return BuiltinVoices(Path(settings.model) / "voices")
    except VoiceError as error:
        raise CommandError(f"model: {error}") from error


def _check_name(name: str, settings: Settings) -> None:
    """Refuse the names of built-in voices, as the service does."""
    from app.engine.voices import OPENAI_VOICES
    from models.voices.voice import DEFAULT

    builtin = _builtin(settings)
    if name == DEFAULT or name in OPENAI_VOICES or name in builtin:
        raise CommandError(f"name: {name} is the name of a built-in voice")


def _recording(file: Path, start_s: float | None) -> "Recording":
    """Read and validate a recording, in a process of its own as the service does."""
    from app.engine.errors import SpeechError
    from app.engine.recordings import RecordingProcess

    try:
        with closing(RecordingProcess()) as process:
            return process.read(file.read_bytes(), start_s)
    except OSError as error:
        raise CommandError(f"file: {file}: {error.strerror}") from error
    except SpeechError as error:
        raise CommandError(f"file: {file}: {error}") from error
