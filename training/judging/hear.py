"""A judge for `valle-serve study`: the word error rate of each take, as Whisper hears it.

    valle-serve study temperature=0.4:1.2:9 --judge "python -m training.judging.hear"

Reads lines ``{"text": ..., "sound": PATH}``, and writes a line ``{"wer": ..., "cer": ...}`` each.
"""

import json
import sys

import soundfile

from training.judging.judges import Whisper, count_errors, in_words, resample, whisper_folder

_HEARING_HZ = 16_000


def main() -> None:
    """Judge until stdin ends."""
    whisper = Whisper(whisper_folder("tiny.en"))
    for line in sys.stdin:
        asked = json.loads(line)
        samples, rate_hz = soundfile.read(asked["sound"], dtype="float32")
        heard = whisper.hear(resample(samples, rate_hz, _HEARING_HZ))
        errors = count_errors(in_words(asked["text"]), in_words(heard))
        rates = {
            "wer": errors.word_edits / errors.words,
            "cer": errors.letter_edits / errors.letters,
        }
        print(json.dumps(rates), flush=True)


if __name__ == "__main__":
    main()
