"""The backend: a loaded model that plans jobs, samples their codes and makes their audio.

Owns the weights, voices, and what the model cannot do. Does not know threads and queues.
"""
