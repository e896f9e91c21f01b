"""Neural audio codecs: samples to codes and back, and what restores recordings."""
