"""A WebSocket of ElevenLabs' protocol for several texts at once."""

from collections.abc import Sequence
from typing import Final

from app.compat.elevenlabs.session import (
    ElevenLabsSession,
    TextMessages,
    parsed_message,
    refusal_message,
    warnings_field,
)
from app.engine.errors import InvalidRequest, SpeechError

_MOST_CONTEXTS: Final = 5
_DEFAULT_CONTEXT: Final = "default"


class ContextsSession(ElevenLabsSession):
    """A WebSocket for several texts at once, each in a context that the client names."""

    _closing = False

    async def handle(self, message: str | bytes) -> None:
        """Act on a message; what is refused ends its context, if it names one."""
        name = None
        try:
            parsed = parsed_message(message)
            name = parsed.context_id or _DEFAULT_CONTEXT
            await self.settle()
            if parsed.close_socket:
                await self._close_socket()
            elif parsed.close_context:
                await self._close(name)
            else:
                if parsed.text and len(self._open_contexts | {name}) > _MOST_CONTEXTS:
                    raise InvalidRequest(f"at most {_MOST_CONTEXTS} contexts may be open")
                await self._append(name, parsed)
        except SpeechError as error:
            await self.send(refusal_message(error) | ({"contextId": name} if name else {}))
            if name in self.speeches:
                await self.cancel(name)
            elif name is not None:
                await self.speech_ended(name, None)

    async def speech_ended(
        self, name: str, error: SpeechError | None, warnings: Sequence[str] = ()
    ) -> None:
        """Tell that a context has ended; every one that was opened does so once."""
        self.contexts.pop(name, None)
        if error is not None:
            await self.send(refusal_message(error) | {"contextId": name})
        final = {"audio": None, "isFinal": True, "contextId": name}
        await self.send(final | warnings_field(warnings))
        if self._closing and not self.contexts:
            await self.end()

    def _messages(self, name: str, speed: float) -> "TextMessages":
        absolute = self._query.get("sync_alignment") == "true"
        return TextMessages(self, name, speed, {"contextId": name}, absolute=absolute)

    @property
    def _open_contexts(self) -> set[str]:
        """Those to which text may be appended."""
        closed = {name for name, speech in self.speeches.items() if speech.growing.ended}
        return {*self.contexts} - closed

    async def _close(self, name: str) -> None:
        """Close a context: text that was flushed is still spoken, other is not."""
        speech = self.speeches.get(name)
        context = self.contexts.get(name)
        if speech is None:
            await self.speech_ended(name, None)
        elif context is not None and context.flushed and not speech.growing.ended:
            speech.growing.end()
        else:
            await self.cancel(name)

    async def _close_socket(self) -> None:
        """Close all contexts, then the WebSocket."""
        self._closing = True
        for name in [*self.contexts]:
            await self._close(name)
        if not self.contexts and not self.over:
            await self.end()
