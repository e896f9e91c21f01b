"""Loading, downloading and checking checkpoints, an adapter for each layout of files."""
