"""The benchmark of the published size measures what it says, tried on a small model."""

from lab.benchmarks.model.published import (
    MARKS,
    measure,
    published_config,
    random_model,
    random_vallex,
)


def test_of_the_other_family_what_it_has_is_measured() -> None:
    model, load_s = random_vallex(layers=1, width=64)
    speeds = measure(model, threads=[1], rounds=1, frames=10)["1 threads"]
    assert load_s > 0
    assert "guided_masked_pass_s" not in speeds
    assert all(value > 0 for value in speeds.values())


def test_every_figure_is_measured() -> None:
    model = random_model(published_config(layers=1, width=64))
    figures = measure(model, threads=[1], rounds=1, frames=10)
    speeds, memory = figures["1 threads"], figures["memory"]
    assert speeds.keys() == {
        *(f"codes_a_second_at_{mark}" for mark in MARKS),
        "prefix_s",
        "nar_s_a_second_of_audio",
        "guided_masked_pass_s",
    }
    assert all(value > 0 for value in speeds.values())
    # a row of keys and one of values a layer, float32
    assert memory["cache_mib_a_stream_at_500"] == 500 * 2 * 4 * 64 / 2**20
    assert memory["float32_millions"] > 1
