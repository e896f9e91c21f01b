"""Write the code hashes of the built-in model's golden requests: ``python -m scripts.gen_golden``.

Run it after a change of the weights, or any intended change of the codes of a seed. Together the
requests use all samplers.
"""

from typing import Any, Final

from pydantic import TypeAdapter

from app.engine.backend.golden import GOLDEN_FILE, GoldenRequest, codes_sha256
from app.engine.backend.synthesizer import Synthesizer
from app.settings import BUILTIN_MODEL, Settings

SENTENCES: Final = ("Hello there.", "One, two, three.", "Good morning to you.", "Is it raining?")
KNOBS: Final[tuple[dict[str, Any], ...]] = (
    {},
    {"preset": "default"},
    {"preset": "greedy"},
    {"preset": "stable", "repetition_penalty": 1.05, "repetition_penalty_window": 1},
    {"preset": "expressive"},
    {"preset": "hf"},
    {"preset": "llama_cpp"},
    {"preset": "vall_e"},
    {
        "temperature": 0.9,
        "top_k": 40,
        "repetition_penalty": 1.2,
        "repetition_penalty_mode": "signed",
    },
    {"mirostat_mode": 2, "mirostat_tau": 3.0},
    {"mirostat_mode": 1, "mirostat_tau": 3.0},
    {"typical_p": 0.9, "frequency_penalty": 0.2},
    {"eta_cutoff": 0.002, "epsilon_cutoff": 0.001, "top_n_sigma": 2.0},
    {"dry_multiplier": 0.8, "xtc_probability": 0.5, "xtc_threshold": 0.1},
    {"min_temperature": 0.3, "dynatemp_mode": "entropy"},
    {"entropix": True},
    {"best_of": 3, "temperature": 0.8, "rank_alignment_weight": 0.0},
    {"beam_width": 3},
    {"nar_temperature": 0.7, "nar_top_k": 20},
    {"backtrack": True, "temperature": 1.2, "nar_decision": "mean"},
)


def main() -> None:
    """Run the command line."""
    model = Synthesizer.load(Settings(model=str(BUILTIN_MODEL), device="cpu", weights="int8"))
    voices = [voice.name for voice in model.planner.voices]
    requests = []
    for number, knobs in enumerate(KNOBS):
        request = GoldenRequest(
            text=SENTENCES[number % len(SENTENCES)],
            voice=voices[number // len(SENTENCES) % len(voices)],
            params={"seed": number, **knobs},
        )
        digest = codes_sha256(model.spoken, request)
        requests.append(request.model_copy(update={"codes_sha256": digest}))
        print(request.voice, request.text, request.params, digest[:12])
    adapter = TypeAdapter(list[GoldenRequest])
    path = BUILTIN_MODEL / GOLDEN_FILE
    path.write_bytes(adapter.dump_json(requests, indent=1) + b"\n")


if __name__ == "__main__":
    main()
