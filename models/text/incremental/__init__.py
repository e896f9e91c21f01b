"""Text that arrives in packets, cut into pieces as soon as a cut is certain."""
