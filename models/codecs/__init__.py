"""Neural audio codecs: samples to codes and back, whole or streamed.

Owns the architectures (EnCodec, spectral, Vocos), their quantiser and stored codes.
Does not know language models, voices, files' layouts or containers.
"""
