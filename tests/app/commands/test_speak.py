"""`valle-serve speak`: long texts, every format, pipes, and what becomes of an interrupted one."""

import errno
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import av
import httpx
import pytest
import soundfile

from app.api.history.packing import unpack_outcome
from app.cli import main
from app.commands.speech.long_speech import split_pieces
from app.engine.core import SpeechResult
from tests.app.commands.speech.documents.books import epub3
from tests.app.tools.serving import until
from tests.conftest import ROOT

TEXT = 'One two. "Three," he said. Four five six. [pause:0.2s] Seven.\n\nEight nine ten.'
SHORT = ["--max-duration-s", "0.4"]
BRIEF = {"512": 3}  # the toy model seldom stops by itself
MANNER = ["--logit-bias", json.dumps(BRIEF), "--seed", "9"]


@pytest.fixture
def book(tmp_path: Path) -> Path:
    path = tmp_path / "book.txt"
    path.write_text(TEXT, "utf-8-sig")
    return path


def spoken(out: Path, *arguments: str) -> bytes:
    assert main(["speak", *arguments, "-o", str(out), *MANNER]) == 0
    return out.read_bytes()


def test_it_writes_a_wav_and_says_what_repeats_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spoken(tmp_path / "a.wav", "Hello.", *SHORT)
    info = soundfile.info(tmp_path / "a.wav")
    assert (info.samplerate, info.channels, info.subtype) == (24_000, 1, "PCM_16")
    said = capsys.readouterr().err
    assert "seed 9" in said
    assert "voice toy" in said
    assert [file.name for file in tmp_path.iterdir()] == ["a.wav"]


CHAPTERS = [
    ("One", "<h1>One</h1><p>It was late.</p>"),
    ("Two", "<h1>Two</h1><p>The word 猫 is here. He left.</p>"),
    ("Three", "<p>The end.</p>"),
]


@pytest.mark.slow
def test_an_epub_becomes_an_audiobook_with_chapters_and_its_title_and_cover(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    book, out = tmp_path / "a.epub", tmp_path / "a.m4b"
    book.write_bytes(epub3(CHAPTERS))
    assert main(["speak", str(book), "-o", str(out), *MANNER, "--speed", "2"]) == 0
    said = capsys.readouterr().err
    assert "left out, as the voice does not read it: 猫 (in Two)" in said
    assert sorted(one.name for one in tmp_path.iterdir()) == ["a.epub", "a.m4b"]
    with av.open(out) as file:
        assert (file.metadata["title"], file.metadata["artist"]) == ("A Walk", "Ann Author, Bob Co")
        chapters = file.chapters()
        heard_s = sum(frame.samples for frame in file.decode(audio=0)) / 24_000
    assert [one["metadata"]["title"] for one in chapters] == ["One", "Two", "Three"]
    begins_s = [one["start"] / 1000 for one in chapters]
    ends_s = [one["end"] / 1000 for one in chapters]
    assert begins_s[0] == 0
    assert begins_s[1:] == ends_s[:-1] == sorted(begins_s[1:])
    assert ends_s[-1] == pytest.approx(heard_s, abs=0.1)
    with av.open(out) as file:
        assert file.streams.video[0].codec_context.name == "png"


@pytest.mark.slow
def test_a_finished_file_is_named_with_its_length_before_it_is_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "a.wav"
    spoken(out, "Hello.", *SHORT)
    assert "replaces" not in capsys.readouterr().err
    soundfile.write(out, [0.0] * 24_000 * 63, 24_000)
    spoken(out, "Hello.", *SHORT)
    assert capsys.readouterr().err.startswith(f"replaces {out} (1:03) at the end\n")


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("a.pdf", b"%PDF-1.7", "this is a PDF: save it as text"),
        ("a.txt", "Café".encode("latin-1"), "iconv -f WINDOWS-1252 -t UTF-8 a.txt"),
        ("a.epub", b"PK\x03\x04", "damaged EPUB"),
    ],
)
def test_a_file_of_another_kind_is_refused_with_what_helps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: bytes, why: str
) -> None:
    (tmp_path / name).write_bytes(content)
    assert main(["speak", str(tmp_path / name), "-o", str(tmp_path / "a.wav")]) == 2
    assert why in capsys.readouterr().err
    assert main(["speak", "gone.epub", "-o", str(tmp_path / "a.wav")]) == 2
    assert "there is no file gone.epub" in capsys.readouterr().err


def test_a_disk_that_is_too_small_for_a_book_is_told_before_anything_is_spoken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    book, out = tmp_path / "a.txt", tmp_path / "a.wav"
    book.write_text("One two three. " * 10_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**9, 0, 10**8))
    assert main(["speak", str(book), "-o", str(out)]) == 1
    said = capsys.readouterr().err
    assert "about 3.0 hours of speech take 1,050 MB" in said
    assert "100 MB are free" in said


@pytest.mark.slow
def test_a_disk_that_is_full_in_the_midst_of_a_book_is_told_with_what_to_do(
    book: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = Path.replace

    def full(path: Path, target: Path) -> Path:
        if path.name == "000002.part.partial":
            raise OSError(errno.ENOSPC, "No space left on device")
        return replace(path, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", full)
        assert main(["speak", "--file", str(book), "-o", str(tmp_path / "a.wav"), *MANNER]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"out: no space is left for {tmp_path / 'a.wav.parts'}, which takes 350 MB an hour"
        " of speech: free some, and run the same command again"
    )
    assert spoken(tmp_path / "a.wav", "--file", str(book)) == spoken(
        tmp_path / "b.wav", "--file", str(book)
    )


@pytest.mark.slow
def test_what_is_not_read_is_named_with_its_line_or_refused_before_anything_is_spoken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    book = tmp_path / "book.txt"
    book.write_text("One two.\n\nThe word 猫 is here.\nSo is ツ.\nAnd 猫.", "utf-8")
    spoken(tmp_path / "a.wav", "--file", str(book), *SHORT)
    warnings = [one for one in capsys.readouterr().err.splitlines() if "left out" in one]
    assert warnings == [
        "warning: left out, as the voice does not read it: 猫 (line 3 and 1 more), ツ (line 4)"
    ]
    out = tmp_path / "b.wav"
    assert main(["speak", "--file", str(book), "-o", str(out), "--unreadable", "refuse"]) == 2
    said = capsys.readouterr().err
    assert "sentence 2, line 3: this voice reads English only, not 猫 (CJK)" in said
    assert not [*tmp_path.glob("b.wav*")]


def test_a_book_without_anything_to_speak_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "a.wav"
    assert main(["speak", "猫が好き。\n\n犬も好き。", "-o", str(out)]) == 2
    assert "this voice reads English only, not 猫が好き (CJK)" in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "which"),
    [
        ("Hello there.", "it has no sound"),
        ("One two. [pause:0.2s] Three.\n\nFour.", "3 of 3 sentences have no sound (1, 2, 3)"),
    ],
)
@pytest.mark.parametrize("piped", [False, True])
def test_a_model_that_stops_at_once_is_told_of(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes], text: str, which: str, piped: bool
) -> None:
    out = "-" if piped else str(tmp_path / "a.mp3")
    assert main(["speak", text, "-o", out, "--logit-bias", '{"512": 100}']) == 0
    warning, *rest = capsysbinary.readouterr().err.decode().splitlines()
    assert warning.startswith(f"warning: {which}: ")
    assert "--seed" in warning
    assert "--min-frames" in warning
    assert len(rest) == (0 if piped else 1)
    assert piped or rest[0].endswith("finish reason empty")


@pytest.mark.slow
@pytest.mark.parametrize("loudness_lufs", [None, -20.0])
def test_a_text_of_many_sentences_is_what_the_server_makes_of_it(
    tmp_path: Path, book: Path, toy_server: httpx.Client, loudness_lufs: float | None
) -> None:
    wanted = {
        "input": TEXT,
        "seed": 9,
        "logit_bias": BRIEF,
        "speed": 1.25,
        "loudness_lufs": loudness_lufs,
    }
    told = toy_server.post("/tts", json={**wanted, "response_format": "wav"})
    assert told.status_code == 200, told.text
    loudness = [] if loudness_lufs is None else ["--loudness-lufs", str(loudness_lufs)]
    ours = spoken(tmp_path / "a.wav", "-f", str(book), "--speed", "1.25", *loudness)
    assert ours == told.content


@pytest.mark.slow
def test_the_name_of_the_file_chooses_the_format(tmp_path: Path) -> None:
    samples = len(spoken(tmp_path / "a.pcm", "Hello. You.", *SHORT)) // 2
    for form in ("mp3", "opus", "flac"):
        out = tmp_path / f"a.{form}"
        spoken(out, "Hello. You.", *SHORT)
        with av.open(str(out)) as file:
            frames = list(file.decode(audio=0))
        assert file.format.name in {form, "ogg"}
        seconds = sum(frame.samples / frame.sample_rate for frame in frames)
        assert -1e-4 < seconds - samples / 24_000 < (0.1 if form == "mp3" else 1e-4)


@pytest.mark.slow
def test_words_come_from_an_argument_a_file_or_stdin(
    tmp_path: Path, book: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from_file = spoken(tmp_path / "a.wav", "--file", str(book))
    monkeypatch.setattr(sys, "stdin", io.StringIO(TEXT))
    assert spoken(tmp_path / "b.wav", "-") == from_file
    assert spoken(tmp_path / "c.wav", TEXT) == from_file


def test_a_text_and_its_speech_may_be_longer_than_those_of_a_request(
    tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setenv("TTS_MAX_TEXT_CHARS", "10")
    monkeypatch.setenv("TTS_MAX_AUDIO_S", "0.5")
    spoken(tmp_path / "a.wav", "This sentence alone is longer. So is that one.", *SHORT)


def test_the_longest_duration_is_that_of_the_whole_text(
    tmp_path: Path, book: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spoken(tmp_path / "a.wav", "-f", str(book), "--max-duration-s", "0.6", "--pause-s", "0")
    assert "finish reason length" in capsys.readouterr().err
    pause_s = 0.2  # that the text asks for is not counted
    assert soundfile.info(tmp_path / "a.wav").duration <= 0.6 + pause_s


def test_trace_goes_beside_the_file_and_tells_of_every_sentence(tmp_path: Path) -> None:
    spoken(tmp_path / "a.wav", "Hello. You there.", "--trace", *SHORT)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.wav", "a.wav.json"]
    report = json.loads((tmp_path / "a.wav.json").read_text())
    assert report["request"]["input"] == "Hello. You there."
    assert all(utterance["tokens"] for utterance in report["utterances"])
    codes = [frame for utterance in report["utterances"] for frame in utterance["codes"]]
    assert report["frames"] == len(codes)


@contextmanager
def interrupted_after(parts: int, folder: Path) -> Iterator[None]:
    """Press Ctrl-C once so many parts of a speech are kept."""

    def press() -> None:
        until(lambda: len(list(folder.glob("*.part"))) >= parts)
        os.kill(os.getpid(), signal.SIGINT)

    # A shell that starts the tests in the background lets them ignore it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    thread = threading.Thread(target=press)
    thread.start()
    yield
    thread.join()
    signal.signal(signal.SIGINT, before)


@pytest.mark.slow
def test_sigterm_is_as_ctrl_c_with_a_status_of_its_own(tmp_path: Path, book: Path) -> None:
    out, folder = tmp_path / "a.wav", tmp_path / "a.wav.parts"
    book.write_text(TEXT * 400, "utf-8")  # more than it speaks in the meantime
    command = [sys.executable, "-m", "app", "speak", "-f", str(book), "-o", str(out), *MANNER]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT) as process:
        until(lambda: len(list(folder.glob("*.part"))) >= 2)
        process.terminate()
        _, log = process.communicate(timeout=60)
    assert process.returncode == 143
    assert f"kept in {folder}; run the same command again" in log
    assert "Traceback" not in log
    assert "speech-audio" not in log


def catches(process: subprocess.Popen[str], number: int) -> bool:
    """Return whether a process has a handler of a signal."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return bool(int(status.partition("SigCgt:")[2].split()[0], 16) >> (number - 1) & 1)


@pytest.mark.slow
def test_what_ends_before_a_sentence_is_spoken_says_nothing_of_another_texts_parts(
    tmp_path: Path, book: Path
) -> None:
    out = tmp_path / "a.wav"
    (tmp_path / "a.wav.parts").mkdir()
    command = [sys.executable, "-m", "app", "speak", "-f", str(book), "-o", str(out), *MANNER]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT) as process:
        until(lambda: catches(process, signal.SIGTERM))
        process.terminate()  # while the model is loaded
        _, log = process.communicate(timeout=60)
    assert (process.returncode, log) == (143, "")


def test_a_text_that_is_too_long_for_a_server_is_told_what_speaks_it(
    tmp_path: Path, toy_server: httpx.Client, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["speak", "Hello. " * 600, "-o", str(tmp_path / "a.wav")]
    assert main([*asked, "--url", str(toy_server.base_url)]) == 2
    refused = "input: the text has 4200 characters, at most 4096 fit; "
    assert f"{refused}`valle-serve speak --file` speaks a longer one" in capsys.readouterr().err


def test_where_stderr_is_no_terminal_the_progress_is_lines(
    tmp_path: Path,
    book: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("app.commands.speak._LINE_EVERY_S", 0.0)
    spoken(tmp_path / "a.wav", "-f", str(book), *MANNER)
    words = sum(len(piece.split()) for piece in split_pieces(book.read_text("utf-8")))
    told = re.findall(rf"\| (\d+)/{words} \[.*\]$", capsys.readouterr().err, re.MULTILINE)
    done = [*map(int, told)]
    assert done == sorted({*done, words})
    assert len(done) > 2


def _written(folder: Path) -> dict[str, int]:
    return {file.name: file.stat().st_mtime_ns for file in folder.glob("*.part")}


@pytest.mark.slow
def test_what_is_interrupted_goes_on_with_the_same_bytes_in_any_format(
    tmp_path: Path, book: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    book.write_text(TEXT * 3, "utf-8")
    manner = ["-f", str(book), "--context-utterances", "1", "--speed", "1.5"]
    out, folder = tmp_path / "a.wav", tmp_path / "a.wav.parts"
    with interrupted_after(3, folder):
        assert main(["speak", *manner, "-o", str(out), *MANNER]) == 130
    assert f"kept in {folder}; run the same command again" in capsys.readouterr().err
    assert not out.exists()
    kept = _written(folder)
    shutil.copytree(folder, tmp_path / "a.mp3.parts")
    with interrupted_after(len(kept) + 2, folder):
        assert main(["speak", *manner, "-o", str(out), *MANNER]) == 130
    assert kept.items() < _written(folder).items()  # those were not spoken again
    for form in ("wav", "mp3"):
        whole = spoken(tmp_path / f"whole.{form}", *manner)
        assert spoken(tmp_path / f"a.{form}", *manner) == whole
    assert not list(tmp_path.glob("*.parts"))


@pytest.mark.slow
def test_the_seed_that_was_drawn_is_kept(tmp_path: Path, book: Path) -> None:
    unseeded = ["-f", str(book), *MANNER[:2]]
    out, again = tmp_path / "a.wav", tmp_path / "b.wav"
    with interrupted_after(2, tmp_path / "a.wav.parts"):
        assert main(["speak", *unseeded, "-o", str(out)]) == 130
    part = (tmp_path / "a.wav.parts" / "000001.part").read_bytes()
    _, result = unpack_outcome(part.partition(b"\n")[2])
    assert isinstance(result, SpeechResult)
    seed = result.seed
    assert main(["speak", *unseeded, "-o", str(out)]) == 0
    assert main(["speak", *unseeded, "-o", str(again), "--seed", str(seed)]) == 0
    assert out.read_bytes() == again.read_bytes()


@pytest.mark.slow
def test_what_comes_before_a_change_of_the_text_is_not_spoken_again(
    tmp_path: Path, book: Path
) -> None:
    out, folder = tmp_path / "a.wav", tmp_path / "a.wav.parts"
    with interrupted_after(2, folder):
        assert main(["speak", "-f", str(book), "-o", str(out), *MANNER]) == 130
    kept = _written(folder)
    first, _, rest = TEXT.partition('"Three,"')
    book.write_text(f"{first}Eleven. {rest}", "utf-8")
    with interrupted_after(len(kept) + 1, folder):
        assert main(["speak", "-f", str(book), "-o", str(out), *MANNER]) == 130
    changed = {name for name, at in _written(folder).items() if kept.get(name) != at}
    assert "000001.part" not in changed
    assert "000002.part" in changed


def test_what_is_kept_of_another_speech_is_not_lost(
    tmp_path: Path, book: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "a.wav.parts"
    folder.mkdir()
    (folder / "000001.part").write_bytes(b"hours of work")
    assert main(["speak", "-f", str(book), "-o", str(tmp_path / "a.wav")]) == 2
    assert "keeps parts of another speech" in capsys.readouterr().err
    assert (folder / "000001.part").read_bytes() == b"hours of work"


@pytest.mark.slow
def test_a_pipe_gets_one_container_and_nothing_else(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    whole = spoken(tmp_path / "a.pcm", "Hello. You.", *SHORT)
    command = ["speak", "Hello. You.", "-o", "-", *MANNER, *SHORT]
    capsysbinary.readouterr()
    assert main([*command, "--response-format", "pcm"]) == 0
    assert capsysbinary.readouterr() == (whole, b"")
    assert main(command) == 0
    streamed = capsysbinary.readouterr().out
    assert (streamed[:4], streamed[44:]) == (b"RIFF", whole)


@pytest.mark.slow
def test_a_reader_who_leaves_ends_it_without_a_word() -> None:
    command = [sys.executable, "-m", "app", "speak", "Hello there. " * 40, "-o", "-"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.read(100)
        process.stdout.close()
        assert process.wait(60) == 141
        assert process.stderr is not None
        assert b"Error" not in process.stderr.read()


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs a terminal")
def test_no_sound_is_written_to_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ours, theirs = os.openpty()
    with os.fdopen(theirs, "w") as terminal:
        monkeypatch.setattr(sys, "stdout", terminal)
        assert main(["speak", "Hello.", "-o", "-"]) == 2
    os.close(ours)
    assert "stdout is a terminal" in capsys.readouterr().err


def test_a_folder_in_the_files_place_is_refused_and_nothing_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "a.wav"
    out.mkdir()
    assert main(["speak", "Hello.", "-o", str(out), *SHORT]) == 2
    assert f"out: {out} is a folder" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["a.wav"]
