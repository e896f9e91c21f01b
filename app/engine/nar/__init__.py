"""Sound: level 0 of a job to audio, chunk by chunk: the NAR levels, the codec, joining.

Owns how codes become samples, here or in another process. Does not know how level 0 is sampled.
"""
