"""Speech over HTTP: one text in, one audio file out, whole, streamed, or as server-sent events.

Owns the routes `/tts` and `/v1/audio/speech`, and reading and answering their requests.
Does not know how speech is generated or samples are encoded.
"""
