"""The image does what the pages say of it."""

import hashlib
import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.app.tools.redis_server import redis_running
from tests.app.tools.s3_server import S3Server, s3_running
from tests.app.tools.serving import until
from tests.conftest import ROOT
from tests.deploy.container_files import volumes
from tests.deploy.image.conftest import MEASURED, Image, words_of_the_page
from tests.deploy.test_chart import BUCKET, pod
from tests.speech_like import packed, speech_like

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

SMALL = {"input": "Hello there.", "seed": 7, "response_format": "pcm"}
PULLED = 20_000_000


def sha(answer: httpx.Response) -> str:
    assert answer.status_code == 200, answer.text
    return hashlib.sha256(answer.content).hexdigest()[:12]


@pytest.mark.parametrize("edited", ["README.md", "app/settings.py"])
def test_an_edit_makes_a_few_small_layers_anew(image: Image, context: Path, edited: str) -> None:
    path = context / edited
    before = path.read_text("utf-8")
    path.write_text(before + ("\n# edited\n" if path.suffix == ".py" else "\nEdited.\n"), "utf-8")
    try:
        after = Image(context, f"{image.name}-edited")
    finally:
        path.write_text(before, "utf-8")
    kept = [one for one in after.layers if one in image.layers]
    assert after.layers[: len(kept)] == kept
    pulled = after.last_bytes(len(after.layers) - len(kept))
    MEASURED.append((
        f"build after an edit of {edited}; a host pulls",
        f"{after.seconds:.1f} s; {pulled:,} bytes",
    ))
    assert 0 < pulled < PULLED


def test_it_starts_as_the_page_says_and_what_runs_is_whole_at_a_stop(containers) -> None:
    container = containers.run(*words_of_the_page())
    container.until_ready()
    assert "compiling" not in container.log()
    wanted = SMALL | {"input": "This is a sentence of some length, for a while. " * 4}
    alone = sha(container.client.post("/tts", json=wanted))
    spoken: list[str] = []
    begun = threading.Barrier(5)

    def listen() -> None:
        digest = hashlib.sha256()
        with container.client.stream("POST", "/tts", json=wanted) as answer:
            chunks = answer.iter_raw()
            digest.update(next(chunks))
            begun.wait()
            for chunk in chunks:
                digest.update(chunk)
        spoken.append(digest.hexdigest()[:12])

    threads = [threading.Thread(target=listen) for _ in range(4)]
    for thread in threads:
        thread.start()
    begun.wait()
    began_s = time.monotonic()
    status = subprocess.run(["docker", "stop", container.name], capture_output=True).returncode
    MEASURED.append(("`docker stop` in 4 streams", f"{time.monotonic() - began_s:.1f} s"))
    for thread in threads:
        thread.join()
    assert status == 0
    assert spoken == [alone] * 4
    assert container.inspect("{{.State.ExitCode}}") == "0", container.log()
    assert container.inspect("{{.HostConfig.RestartPolicy.Name}}") == "unless-stopped"


def test_the_log_of_health_checks_is_in_words(containers) -> None:
    container = containers.run("--health-interval", "1s")
    container.until_ready()
    until(lambda: container.inspect("{{.State.Health.Status}}") == "healthy")
    told = [one["Output"] for one in json.loads(container.inspect("{{json .State.Health.Log}}"))]
    assert told[-1] == "ready\n"
    assert all(one.count("\n") == 1 for one in told), told


@pytest.mark.parametrize("user", ["12345:0", "4242:4242"])
def test_any_user_runs_it_and_one_outside_of_group_0_is_told_what_is_lost(containers, user) -> None:
    container = containers.run(*words_of_the_page(), "--user", user)
    container.until_ready()
    assert ("as every start will: they cannot be kept" in container.log()) == (user[-1] != "0")
    assert container.client.post("/tts", json=SMALL).status_code == 200


def test_a_wrong_setting_ends_the_start_with_a_sentence(containers) -> None:
    with redis_running() as server:
        server.client.config_set("requirepass", "right")
        wrong = {
            "TTS_STATE": server.url.replace("//", "//:wrong@"),
            "TTS_VOICES": "nothing://there",
            "TTS_MODEL": "/nope",
        }
        said = (
            "Redis refuses us: invalid username-password pair",
            "no kind of store",
            "/nope does",
        )
        for (name, value), sentence in zip(wrong.items(), said, strict=True):
            status, log = containers.run("--env", f"{name}={value}").ended()
            assert (status, "Traceback" in log) == (2, False), log
            assert sentence in log


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    with s3_running(monkeypatch) as server:
        yield server


def as_in_the_chart(key: str, secret: str, url: str) -> list[str]:
    """Return the words of `docker run` for the container of the chart with voices in a bucket."""
    (container,) = pod(BUCKET | {"gpus": 0})["containers"]
    variables = {one["name"]: one["value"] for one in container["env"]}
    variables |= {"AWS_ENDPOINT_URL": url, "AWS_DEFAULT_REGION": "us-east-1"}
    variables |= {"AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": secret}  # of `envFrom`
    words = ["--read-only", "--cap-drop", "ALL", "--user", "123456:0"]
    mounts = {one["mountPath"] for one in container["volumeMounts"]} - volumes()
    words += [word for path in mounts for word in ("--tmpfs", f"{path}:exec,mode=1777")]
    return words + [word for pair in variables.items() for word in ("--env", "=".join(pair))]


def test_voices_in_a_bucket_as_the_chart_has_them(containers, bucket, monkeypatch) -> None:
    key, secret = os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"]
    right = as_in_the_chart(key, secret, bucket.url)
    here, there = containers.run(*right), containers.run(*right)
    stranger = containers.run(*as_in_the_chart(key, "wrong", bucket.url))
    for one in (here, there, stranger):
        one.until_ready()
    form, file = {"name": "anna", "consent": "true"}, ("anna.wav", packed(speech_like(2.0)))
    answer = here.client.post("/v1/audio/voices", data=form, files={"file": file})
    assert answer.status_code == 200, answer.text
    wanted = SMALL | {"voice": "anna"}
    spoken = [sha(one.client.post("/tts", json=wanted)) for one in (here, there)]
    assert spoken[0] == spoken[1]
    refused = stranger.client.post("/tts", json=wanted)
    assert refused.status_code == 503
    assert refused.headers["retry-after"]
    assert stranger.client.post("/tts", json=SMALL).status_code == 200
    deleted = there.client.delete("/v1/audio/voices/anna")
    assert deleted.is_success, deleted.text
    assert here.client.post("/tts", json=wanted).status_code == 404


@pytest.mark.parametrize("name", ["", "gpu"])
def test_compose_has_nothing_to_say_of_its_files(name: str, monkeypatch) -> None:
    if name:
        monkeypatch.setenv("TTS_ALLOWED_HOSTS", name)
    files = ["docker-compose.yml", "docker-compose.cards.yml", "docker-compose.observability.yml"]
    words = [word for file in files for word in ("-f", file)]
    done = subprocess.run(
        ["docker", "compose", *words, "config"], cwd=ROOT, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert ("host.docker.internal,gpu" in done.stdout) == bool(name)
