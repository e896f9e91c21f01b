"""Audio files: samples to one of the formats, at a requested speed and loudness; knows no HTTP."""
