"""What Prometheus reads and Grafana shows is what the service counts."""

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
import yaml
from fastapi.testclient import TestClient
from prometheus_client.metrics import MetricWrapperBase

from app.main import create_app
from app.settings import Settings
from tests.app.tools.serving import served
from tests.conftest import ROOT
from tests.deploy.container_files import compose, last, text
from tests.toy.make_toy import make

FILES = ("docker-compose.yml", "docker-compose.observability.yml")
DEPLOY = ROOT / "deploy"
PROVISIONING = "deploy/grafana/provisioning"
(SOURCE,) = yaml.safe_load(text(f"{PROVISIONING}/datasources/prometheus.yml"))["datasources"]
(JOB,) = yaml.safe_load(text("deploy/prometheus.yml"))["scrape_configs"]
BOARD = DEPLOY / "grafana" / "dashboards" / "valle-serve.json"
SUFFIXES = {
    "counter": ("_total",),
    "gauge": ("",),
    "histogram": ("_bucket", "_sum", "_count"),
    "info": ("_info",),
}
OWN_LABELS = {"histogram": {"le"}}
NAME = re.compile(r"\b((?:tts|http|process)_\w+)(?:\{([^}]*)\})?")
BY = re.compile(r"\bby \(([^)]*)\)")


def _panels() -> list[dict[str, object]]:
    panels = json.loads(BOARD.read_text("utf-8"))["panels"]
    return [panel for panel in panels if panel["type"] != "row"]


def _expressions() -> Iterator[str]:
    for panel in _panels():
        targets = panel["targets"]
        assert isinstance(targets, list)
        yield from (target["expr"] for target in targets)


def _counted() -> dict[str, set[str]]:
    """Return the labels of every series that the service gives, by its name."""
    services = create_app(Settings(state="redis://127.0.0.1:1/0")).state.services
    registries = [services.engine.metrics.registry, services.http_metrics.registry]
    counted: dict[str, set[str]] = {}
    for collector in [one for registry in registries for one in registry._collector_to_names]:
        if isinstance(collector, MetricWrapperBase):
            kind = str(collector._type)
            labels = set(collector._labelnames) | OWN_LABELS.get(kind, set())
            for suffix in SUFFIXES[kind]:
                counted[collector._name + suffix] = labels
        else:
            counted |= {sample.name: set() for one in collector.collect() for sample in one.samples}
    return counted


@pytest.mark.parametrize("expression", sorted(set(_expressions())))
def test_every_expression_asks_for_what_is_counted(expression: str) -> None:
    counted = _counted()
    asked = NAME.findall(expression)
    assert asked
    labels: set[str] = set()
    for name, matchers in asked:
        assert name in counted
        labels |= counted[name]
        assert set(re.findall(r"(\w+)=", matchers)) <= counted[name]
    for names in BY.findall(expression):
        assert set(names.replace(" ", "").split(",")) <= labels


def _families(names: Iterable[str]) -> set[str]:
    return {re.sub(r"_(total|bucket|sum|count)$", "", name) for name in names}


def test_everything_that_we_count_is_shown() -> None:
    shown = {name for expression in _expressions() for name, _ in NAME.findall(expression)}
    ours = {name for name in _counted() if name.startswith("tts_")} - {"tts_build_info"}
    assert _families(ours) == _families(shown - {name for name in shown if "process_" in name})


@pytest.mark.slow
def test_values_that_are_asked_for_are_given(tmp_path: Path) -> None:
    settings = Settings(model=str(make(tmp_path / "toy")), device="cpu")
    with served(create_app(settings)) as client:
        wanted = {"input": "Hello.", "max_duration_s": 0.2, "seed": 3, "stream": True}
        assert client.post("/tts", json=wanted).status_code == 200
        counted = client.get("/metrics").text
    matched = [match for one in _expressions() for match in NAME.findall(one) if match[1]]
    assert matched
    for name, matchers in matched:
        series = [line for line in counted.splitlines() if line.startswith(f"{name}{{")]
        assert any(matchers in line for line in series), (name, matchers)


def test_panels_do_not_lie_on_one_another_and_ask_the_source_that_is_provided() -> None:
    places: set[tuple[int, int]] = set()
    for panel in _panels():
        assert panel["datasource"] == {name: SOURCE[name] for name in ("type", "uid")}
        place = panel["gridPos"]
        assert isinstance(place, dict)
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & places
        assert all(x < 24 for x, _ in cells)
        places |= cells


def test_prometheus_asks_the_service_at_its_port_for_a_route_that_exists() -> None:
    (found,) = JOB["dns_sd_configs"]
    assert (found["type"], str(found["port"])) == ("A", last("EXPOSE"))
    client = TestClient(create_app(Settings()), base_url=f"http://192.0.2.7:{found['port']}")
    told = client.get(JOB.get("metrics_path", "/metrics"))
    assert told.status_code == 200


def test_prometheus_asks_every_replica() -> None:
    services = compose("docker-compose.yml", "docker-compose.cards.yml")["services"]
    replicas = {name for name, one in services.items() if "TTS_STATE" in one.get("environment", {})}
    assert JOB["dns_sd_configs"][0]["names"] == sorted(replicas)


@pytest.mark.parametrize("panel", _panels(), ids=lambda panel: panel["title"])
def test_two_replicas_do_not_draw_two_lines_of_one_name(panel) -> None:
    for target in panel["targets"]:
        joined = re.match(r"(sum|max|min|histogram_quantile)\b", target["expr"])
        assert joined or "{{instance}}" in target["legendFormat"], target["expr"]


def test_grafana_asks_prometheus_where_it_listens() -> None:
    service, _, port = SOURCE["url"].removeprefix("http://").partition(":")
    assert port == compose(*FILES)["services"][service]["ports"][0].rpartition(":")[2]


def _copied(service: str) -> dict[str, Path]:
    """Return what is copied into an image, by where it then lies."""
    build = compose(*FILES)["services"][service]["build"]
    lines = [line.split() for line in build["dockerfile_inline"].splitlines()]
    return {words[-1]: ROOT / build["context"] / words[-2] for words in lines if words[0] == "COPY"}


def test_files_that_are_copied_exist_and_lie_where_they_are_looked_for() -> None:
    services = compose(*FILES)["services"]
    (config,) = [
        word.partition("=")[2]
        for word in services["prometheus"]["command"]
        if word.startswith("--config.file")
    ]
    assert _copied("prometheus")[config] == DEPLOY / "prometheus.yml"
    (provider,) = yaml.safe_load(text(f"{PROVISIONING}/dashboards/files.yml"))["providers"]
    copied = _copied("grafana")
    assert all(source.exists() for source in copied.values())
    assert copied[provider["options"]["path"]] == BOARD.parent
    home = Path(services["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert copied[str(home.parent)] / home.name == BOARD


def test_no_file_of_the_checkout_is_mounted_its_modes_are_set_and_the_base_is_pinned() -> None:
    """One made under umask 077 could not be read by the users of these images."""
    for service in compose("docker-compose.observability.yml")["services"].values():
        assert not [volume for volume in service["volumes"] if volume.startswith((".", "/"))]
        base, *others = service["build"]["dockerfile_inline"].splitlines()
        assert re.fullmatch(r"FROM [\w/]+:v?\d+\.\d+\.\d+", base)
        assert all(line.startswith("COPY --chmod=") for line in others if "COPY" in line)
        assert service["pull_policy"] == "build"  # an edit counts at the next start
        assert service["read_only"] is True


def test_nobody_may_change_a_dashboard_or_log_in_with_a_default_password() -> None:
    grafana = compose(*FILES)["services"]["grafana"]["environment"]
    assert grafana["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"
    assert grafana["GF_AUTH_DISABLE_LOGIN_FORM"] == "true"
    assert grafana["GF_AUTH_BASIC_ENABLED"] == "false"
