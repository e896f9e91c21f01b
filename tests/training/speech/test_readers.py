from training.speech.readers import PACES, RATES, VOICES, readers


def test_readers_stay_the_same_and_keep_within_bounds() -> None:
    many = readers(200)
    assert readers(5) == many[:5]
    assert len({one.name for one in many}) == 200
    assert {one.voice for one in many} == set(VOICES)
    for one in many:
        assert RATES[one.voice][0] <= one.rate <= RATES[one.voice][1]
        assert PACES[0] <= one.pace <= PACES[1]
