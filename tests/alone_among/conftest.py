"""The toy, and its level 0 in both kinds of weights."""

from tests.app.engine.ar.conftest import float_model, model
from tests.app.engine.conftest import speech

__all__ = ["float_model", "model", "speech"]
