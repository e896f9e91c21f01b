"""Neural audio codecs: samples to codes and back, whole or streamed.

Owns the architectures (EnCodec, spectral, Vocos), their quantiser and stored codes,
and what restores recordings before they are encoded.
Does not know language models, voices, files' layouts or containers.
"""
