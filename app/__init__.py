"""The service: a text-to-speech server and its command line.

Owns jobs and their scheduling (`app.engine`), audio files (`app.audio`), HTTP (`app.api`), the
commands (`app.commands`), and the settings that join them (`app.main`).
Does not know how a token is chosen (`samplers`), how a model computes (`models`), or how one is
trained (`training`).
"""
