import pytest

from app.engine.admission import playback as module
from app.engine.admission.playback import LEAST_LEFT_S, WHOLE_AFTER_S, WHOLE_SLOWER, Playback


@pytest.fixture
def clock(monkeypatch):
    now = [1000.0]  # not this machine's: rounding differs with its size
    monkeypatch.setattr(module, "monotonic", lambda: now[0])
    return now


def test_before_the_first_sound_the_listener_waits_since_the_job_came(clock):
    playback = Playback(clock[0])
    clock[0] += 0.3
    playback.add(0.0)
    assert (playback.first_audio_s, playback.runs_out_s) == (0.0, playback.submitted_s)
    playback.add(0.5)
    assert playback.first_audio_s == pytest.approx(0.3)
    assert playback.runs_out_s == pytest.approx(clock[0] + 0.5)


def test_sound_in_time_is_no_underrun_and_late_sound_is_by_as_much_as_it_is_late(clock):
    playback = Playback(clock[0])
    playback.add(0.2)
    clock[0] += 0.1
    playback.add(0.2)
    assert playback.underrun_s == 0
    clock[0] += 0.5  # 0.2 s more than there was sound for
    playback.add(0.2)
    assert playback.underrun_s == pytest.approx(0.2)
    assert playback.runs_out_s == pytest.approx(clock[0] + 0.2)
    clock[0] += 0.2
    playback.add(0.2)
    assert playback.underrun_s == pytest.approx(0.2)


def test_what_a_listener_did_not_read_in_time_was_not_heard_and_no_gap(clock):
    playback = Playback(clock[0])
    playback.add(2.0)
    clock[0] += 10.0
    playback.put_off(1.5)
    assert playback.lead_s == pytest.approx(1.5)
    assert playback.underrun_s == 0
    assert playback.lead_of(3.0) == pytest.approx(2.5)
    clock[0] += 1.0
    playback.put_off(0.1)  # less than the clock says
    playback.add(1.0)
    assert playback.lead_s == pytest.approx(1.5)
    assert playback.underrun_s == 0


def test_the_lead_is_what_is_left_to_be_heard_and_never_less_than_nothing(clock):
    playback = Playback(clock[0])
    assert playback.lead_s == 0
    playback.add(0.5)
    clock[0] += 0.2
    assert playback.lead_s == pytest.approx(0.3)
    clock[0] += 1.0
    assert playback.lead_s == 0


def test_sound_that_is_held_begins_when_there_is_enough_of_it(clock):
    playback = Playback(clock[0])
    playback.prebuffer_s = 0.5
    playback.add(0.3)
    assert playback.first_s is None
    clock[0] += 1.0
    playback.add(0.3)
    assert playback.first_audio_s == pytest.approx(1.0)
    assert playback.lead_s == pytest.approx(0.6)
    assert playback.underrun_s == 0


def test_what_is_shorter_than_was_held_for_begins_at_its_end(clock):
    playback = Playback(clock[0])
    playback.prebuffer_s = 5.0
    playback.add(0.3)
    clock[0] += 1.0
    playback.begin()
    assert playback.first_audio_s == pytest.approx(1.0)


def test_what_is_left_is_never_nothing_before_the_end_of_what_was_expected_to_be_some(clock):
    playback = Playback(clock[0])
    assert playback.left_s == 0
    playback.expected_s = 2.0
    playback.add(0.5)
    assert playback.left_s == pytest.approx(1.5)
    playback.add(3.0)
    assert playback.left_s == pytest.approx(LEAST_LEFT_S)


def test_a_speech_sent_whole_is_due_as_if_it_was_played_later_and_slower(clock):
    playback = Playback(clock[0], played=False)
    assert playback.due_s == clock[0] + WHOLE_AFTER_S
    playback.add(0.5)
    assert playback.due_s == pytest.approx(clock[0] + WHOLE_AFTER_S + WHOLE_SLOWER * 0.5)


def test_of_two_that_give_way_the_one_that_took_more_work_comes_later(clock):
    playback = Playback(clock[0])
    playback.gives_way = True
    playback.add(0.5)
    playback.worked_s = 3.0
    assert playback.due_s == pytest.approx(clock[0] + WHOLE_AFTER_S + WHOLE_SLOWER * 3.0)
    clock[0] += 5.0
    assert playback.lead_of(0.5) == 0.5
    playback.worked_s = 0.1
    assert playback.lead_of(0.5) == pytest.approx(WHOLE_AFTER_S + WHOLE_SLOWER * 0.5 - 5.0)


def test_a_played_stream_is_due_when_it_runs_out(clock):
    playback = Playback(clock[0])
    playback.add(0.5)
    assert playback.due_s == playback.runs_out_s


def test_of_speeches_sent_whole_the_one_that_was_served_least_is_behind(clock):
    playback = Playback(clock[0], played=False)
    assert playback.lead_of(0.5) == 0.5
    assert playback.lead_of(20.0) == 20.0


def test_a_speech_sent_whole_that_is_not_served_falls_behind_in_the_end(clock):
    playback = Playback(clock[0], played=False)
    clock[0] += WHOLE_AFTER_S + WHOLE_SLOWER * 20.0
    assert playback.lead_of(20.0) == pytest.approx(0.0, abs=1e-6)


def test_a_gap_while_words_were_waited_for_is_the_authors_and_no_stall(clock):
    playback = Playback(clock[0])
    playback.add(0.2)
    clock[0] += 0.1
    playback.wait_for_words(True)
    clock[0] += 0.4
    playback.wait_for_words(False)
    clock[0] += 0.2  # which drawing took
    playback.add(0.2)
    assert playback.unwritten_s == pytest.approx(0.4)
    assert playback.underrun_s == pytest.approx(0.1)
    assert playback.lead_s == pytest.approx(0.2)
    clock[0] += 0.5
    playback.add(0.2)  # late again, and all words were there
    assert playback.unwritten_s == pytest.approx(0.4)
    assert playback.underrun_s == pytest.approx(0.4)


def test_a_playback_waits_for_the_pace_of_its_text_and_begins_then(clock):
    playback = Playback(clock[0])
    playback.begins_s = clock[0] + 0.3
    playback.add(0.2)
    assert (playback.first_s, playback.may_begin) == (None, False)
    clock[0] += 0.3
    assert playback.may_begin
    playback.begin()
    assert playback.first_s == clock[0]
