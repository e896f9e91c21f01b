"""Two tools that show on a CPU what only the capture of a CUDA graph would show, and their use.

`Watch` finds what makes a host wait for its device; `Tape` is a CUDA graph on a CPU. Every function
that the service records is tested with both. They know nothing of the service.
"""
