"""Speech over a WebSocket for a text that is still being written: protocol `valle.speech.v1`.

Owns messages, sessions and responses, which end in one `response.done` each.
Does not know how speech is generated; that is `app.engine.growing`.
"""
