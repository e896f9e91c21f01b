"""Neural audio codecs: samples to codes and back, whole or streamed, and what restores recordings.

They know no language models, voices, files' layouts or containers.
"""
