"""Speech in the shapes of other services: ElevenLabs', and Kokoro-FastAPI's captions.

Owns their requests and answers. Does not know how a speech is generated or rendered.
"""
