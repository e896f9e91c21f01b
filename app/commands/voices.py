"""`valle-serve voices`: manage the folder of uploaded voices.

Works on the files in TTS_VOICES; a running service sees changes at once. A voice that is added here
belongs to everybody, unless an owner is named.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, Field
from pydantic_settings import CliApp, CliImplicitFlag, CliPositionalArg, CliSubCommand

from app.commands.errors import CommandError
from app.settings import Settings

if TYPE_CHECKING:
    from app.storage.voice_store import VoiceStore
    from models.voices.recording import Recording

_OWNER = Field("", description="Owner, as named for an API key; default everybody.")


class Add(BaseModel):
    """Add a voice, by default for everybody."""

    name: CliPositionalArg[str] = Field(
        description="Id of the voice: lower-case letters, digits, _ and -."
    )
    file: CliPositionalArg[Path] = Field(
        description="WAV, FLAC, MP3 or OGG with 1 to 30 s of speech."
    )
    consent: CliImplicitFlag[bool] = Field(
        False, description="Confirm that the speaker consents to speech in this voice."
    )
    language: str = Field("en", description="Language of the speaker.")
    transcript: str | None = Field(None, max_length=1000, description="Transcript of the audio.")
    title: str = Field("", max_length=100, description="Display name.")
    description: str = Field("", max_length=1000, description="Description of the voice.")
    owner: str = _OWNER

    def cli_cmd(self) -> None:
        """Validate the recording and store the voice.

        Raises:
            CommandError: The recording is invalid or the name is in use.
        """
        from app.storage.voice_store import NameTaken, StoreFull
        from models.voices.voice import VoiceCard

        if not self.consent:
            raise CommandError("consent: give --consent to confirm that the speaker consents")
        settings = Settings()
        _check_name(self.name, settings)
        store, recording = _store(settings), _recording(self.file)
        card = VoiceCard.model_validate(self.model_dump(include=set(VoiceCard.model_fields)))
        try:
            voice = store.add(self.name, self.owner, card, recording)
        except NameTaken as error:
            raise CommandError(f"name: voice {self.name} exists already") from error
        except StoreFull as error:
            raise CommandError(f"owner: TTS_MAX_VOICES, {store.max_voices}, is reached") from error
        except OSError as error:
            raise CommandError(f"voices: {settings.voices}: {error.strerror}") from error
        except ValueError as error:
            raise CommandError(f"name: {error}") from error
        print(f"{self.name}: {recording.audio_s:.1f} s, {voice.audio}")


class List(BaseModel):
    """List the uploaded voices of all owners."""

    def cli_cmd(self) -> None:
        """Print one line per voice."""
        settings = Settings()
        store = _store(settings)
        voices = [voice for owner in store.owners() for voice in store.of(owner)]
        damaged = [(name, owner) for owner in store.owners() for name in store.damaged(owner)]
        if not voices and not damaged:
            print(f"no voices in {settings.voices}")
            return
        print(f"{'name':<24} {'owner':<24} {'seconds':>7} {'language':<8} {'added':<10} title")
        for voice in voices:
            added = datetime.fromtimestamp(voice.created_at, UTC).date()
            print(
                f"{voice.name:<24} {voice.owner or 'everybody':<24} {voice.audio_s or 0:>7.1f}"
                f" {voice.language:<8} {added} {voice.title}"
            )
        for name, owner in damaged:
            print(f"{name:<24} {owner or 'everybody':<24} damaged: remove it and add it again")


class Remove(BaseModel):
    """Delete an uploaded voice and its audio; speeches in progress are not affected."""

    name: CliPositionalArg[str] = Field(description="Id of the voice.")
    owner: str = _OWNER

    def cli_cmd(self) -> None:
        """Delete the voice.

        Raises:
            CommandError: It does not exist or cannot be deleted.
        """
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
    list: CliSubCommand[List] = Field(description="List the uploaded voices.")
    remove: CliSubCommand[Remove] = Field(description="Delete a voice and its audio.")

    def cli_cmd(self) -> None:
        """Run the subcommand."""
        CliApp.run_subcommand(self, cli_exit_on_error=False)


def _store(settings: Settings) -> "VoiceStore":
    from app.storage.remote_voices import open_voice_store

    return open_voice_store(settings.voices, settings.max_voices)


def _check_name(name: str, settings: Settings) -> None:
    """Refuse the names of built-in voices, as the service does.

    Raises:
        CommandError: It is one.
    """
    from app.engine.voices import OPENAI_VOICES
    from models.voices.voice import DEFAULT, BuiltinVoices, VoiceError

    try:
        builtin = BuiltinVoices(Path(settings.model) / "voices")
    except VoiceError as error:
        raise CommandError(f"model: {error}") from error
    if name == DEFAULT or name in OPENAI_VOICES or name in builtin:
        raise CommandError(f"name: {name} is the name of a built-in voice")


def _recording(file: Path) -> "Recording":
    """Read and validate a recording.

    Raises:
        CommandError: It cannot be read or is invalid.
    """
    from models.voices.recording import RecordingError, read_recording

    try:
        return read_recording(file.read_bytes())
    except OSError as error:
        raise CommandError(f"file: {file}: {error.strerror}") from error
    except RecordingError as error:
        raise CommandError(f"file: {file}: {error}") from error
