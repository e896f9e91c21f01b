"""Everything with weights, and the text front end: text to phonemes, codes and samples."""
