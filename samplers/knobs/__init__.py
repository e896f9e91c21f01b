"""The knobs of a request: declaration, presets, conflicts, resolution. Loads without torch."""
