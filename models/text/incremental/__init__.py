"""Where a text is cut: one that arrives in packets as soon as it is certain, a long sentence."""
