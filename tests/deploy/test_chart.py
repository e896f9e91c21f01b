"""The Helm chart, rendered by Helm's own library and checked against Kubernetes' own schemas."""

import json
import re
from typing import Any

import pytest
import yaml

from app.settings import Settings
from tests.conftest import ROOT
from tests.deploy.container_files import env, last, settings_of, volumes

helm = pytest.importorskip("helm_python", reason="needs the package helm-python-sdk")
schemas = pytest.importorskip("kubernetes_validate")

CHART = ROOT / "deploy" / "helm" / "valle-serve"
KUBERNETES = "1.33"
OF_OTHERS = {"ServiceMonitor", "ScaledObject"}
"""Kinds that Kubernetes itself has no schema of."""

EVERYTHING = {
    "keys": {"secret": "speech-keys"},
    "redis": {"enabled": True},
    "cache": {"persistent": True, "accessModes": ["ReadWriteMany"]},
    "ingress": {"enabled": True, "host": "speech.example", "className": "nginx", "tlsSecret": "t"},
    "autoscaling": {"kind": "hpa"},
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "settings": {"TTS_SLOTS": 32, "TTS_RATE_PER_MINUTE": 60, "TTS_CHECK_GOLDEN": True},
    "env": [{"name": "FORWARDED_ALLOW_IPS", "value": "*"}],
    "networkPolicy": {"from": [{"namespaceSelector": {}}]},
}
BUCKET: dict[str, Any] = {
    "replicas": 2,
    "settings": {"TTS_VOICES": "s3://bucket/voices"},
    "env": [{"name": "AWS_ENDPOINT_URL", "value": "http://minio.storage:9000"}],
    "envFrom": [{"secretRef": {"name": "voices-store"}}],
    "networkPolicy": {
        "egress": [{"to": [{"namespaceSelector": {}}], "ports": [{"port": 9000}]}],
    },
}
"""As docs/replicas.md has voices in a bucket."""

IMAGE = "registry.example:5000/speech/valle-serve"

VARIANTS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "everything": EVERYTHING,
    "keda": {"autoscaling": {"kind": "keda"}},
    "cpu": {"gpus": 0, "networkPolicy": {"enabled": False}},
    "own redis": {"redis": {"urlSecret": "redis-url"}, "state": {"fail": "closed"}},
    "bucket": BUCKET,
}
EVERY = pytest.mark.parametrize("variant", VARIANTS)


def rendered(values: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the resources by kind and name."""
    values = {**values, "image": {"repository": IMAGE, **values.get("image", {})}}
    with helm.Chart.load(str(CHART)) as chart:
        files = chart.render(values, name="speech", namespace="prod")
    documents = [one for text in files.values() for one in yaml.safe_load_all(text) if one]
    found = {(one["kind"], one["metadata"]["name"]): one for one in documents}
    assert len(found) == len(documents)
    return found


def pod(values: dict[str, Any]) -> dict[str, Any]:
    spec = rendered(values)["Deployment", "speech"]["spec"]["template"]["spec"]
    assert isinstance(spec, dict)
    return spec


def container_of(values: dict[str, Any]) -> dict[str, Any]:
    (container,) = pod(values)["containers"]
    assert isinstance(container, dict)
    return container


def variables(values: dict[str, Any]) -> dict[str, Any]:
    named = [(one["name"], one.get("value")) for one in container_of(values)["env"]]
    assert len(dict(named)) == len(named)
    return dict(named)


def test_helm_finds_no_fault() -> None:
    found = helm.lint(str(CHART))
    assert found["total_charts_linted"] == 1
    assert found["errors"] == []
    assert all(one["severity"] <= 1 for one in found["messages"]), found["messages"]


@EVERY
def test_every_resource_is_what_kubernetes_takes(variant) -> None:
    resources = rendered(VARIANTS[variant])
    for (kind, _), resource in resources.items():
        if kind not in OF_OTHERS:
            schemas.validate(resource, KUBERNETES, strict=True)
    kinds = {kind for kind, _ in resources}
    assert {"Deployment", "Service", "PodDisruptionBudget"} <= kinds
    assert ("NetworkPolicy" in kinds) == (variant != "cpu")


def test_what_is_not_asked_for_is_not_there() -> None:
    kinds = {kind for kind, _ in rendered({})}
    assert not kinds & {"Ingress", "HorizontalPodAutoscaler", *OF_OTHERS}
    everything = {kind for kind, _ in rendered(EVERYTHING)}
    assert everything >= {"Ingress", "HorizontalPodAutoscaler", "ServiceMonitor"}


@EVERY
def test_variables_are_settings(variant, monkeypatch) -> None:
    settings = settings_of(monkeypatch, variables(VARIANTS[variant]))
    assert (settings.host, settings.port) == ("0.0.0.0", int(last("EXPOSE")))


def test_a_value_of_no_meaning_is_refused() -> None:
    wrong: list[dict[str, Any]] = [
        {"replcas": 2},
        {"settings": {"SLOTS": 3}},
        {"autoscaling": {"kind": "magic"}},
        {"state": {"fail": "ajar"}},
        {"env": {"HF_TOKEN": "a"}},
        {"image": {"repo": "x"}},
        {"image": {"repository": "x:cuda"}},
        {"image": {"tag": 1}},
        {"image": {"pullPolicy": "Sometimes"}},
        {"imagePullSecrets": ["name"]},
        {"resources": {"limit": {"memory": "1Gi"}}},
        {"model": "ecker/vall-e"},
        {"model": {"path": "x"}},
        {"cache": {"siez": "1Gi"}},
        {"cache": {"size": "1 GB"}},
        {"voices": {"accessModes": ["ReadWrite"]}},
        {"service": {"type": "Cluster"}},
        {"service": {"port": "http"}},
        {"ingress": {"hosts": ["a.example"]}},
        {"ingress": {"annotations": {"a": 1}}},
        {"disruptionBudget": {"max": 1}},
        {"serviceMonitor": {"intervall": "1s"}},
        {"networkPolicy": {"form": []}},
        {"tolerations": ["all"]},
        {"podAnnotations": {"a": True}},
    ]
    for values in wrong:
        with helm.Chart.load(str(CHART)) as chart, pytest.raises(helm.HelmError):
            chart.validate_schema(values)


def test_an_image_must_be_named() -> None:
    with (
        helm.Chart.load(str(CHART)) as chart,
        pytest.raises(helm.HelmError, match=r"image\.repository"),
    ):
        chart.render({}, name="speech", namespace="prod")


@pytest.mark.parametrize(
    ("values", "tag"),
    [
        ({}, "cuda"),
        ({"gpus": 2}, "cuda"),
        ({"gpus": 0}, "cpu"),
        ({"gpus": 0, "image": {"tag": "mine"}}, "mine"),
        ({"image": {"tag": "cpu"}}, "cpu"),
    ],
)
def test_the_tag_is_that_of_the_device(values: dict[str, Any], tag: str) -> None:
    assert container_of(values)["image"] == f"{IMAGE}:{tag}"


def test_it_agrees_with_the_image() -> None:
    container = container_of({})
    (port,) = container["ports"]
    assert str(port["containerPort"]) == last("EXPOSE")
    mounts = {one["mountPath"] for one in container["volumeMounts"]}
    assert volumes() < mounts
    assert env()["TTS_VOICES"] in mounts


def test_running_requests_may_end() -> None:
    waits_s = int(container_of({})["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pod({})["terminationGracePeriodSeconds"] > Settings().drain_timeout_s + waits_s
    strategy = rendered(BUCKET)["Deployment", "speech"]["spec"]["strategy"]["rollingUpdate"]
    assert strategy == {"maxSurge": 1, "maxUnavailable": 0}


def test_probes_ask_what_they_mean() -> None:
    container = container_of({})
    asked = {name: container[f"{name}Probe"]["httpGet"]["path"] for name in PROBES}
    assert asked == PROBES
    startup = container["startupProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] >= 600


PROBES = {"startup": "/ready", "readiness": "/ready", "liveness": "/health"}


@EVERY
def test_no_container_has_more_rights_than_it_needs(variant) -> None:
    resources = rendered(VARIANTS[variant]).items()
    for deployment in [resource for (kind, _), resource in resources if kind == "Deployment"]:
        spec = deployment["spec"]["template"]["spec"]
        assert spec["securityContext"]["runAsNonRoot"]
        assert not spec["automountServiceAccountToken"]
        for container in spec["containers"]:
            allowed = container["securityContext"]
            assert allowed["readOnlyRootFilesystem"]
            assert not allowed["allowPrivilegeEscalation"]
            assert allowed["capabilities"] == {"drop": ["ALL"]}


def test_a_bucket_of_voices_has_its_credentials_its_way_out_and_no_claim() -> None:
    resources = rendered(BUCKET)
    assert container_of(BUCKET)["envFrom"] == BUCKET["envFrom"]
    assert variables(BUCKET)["AWS_ENDPOINT_URL"] == "http://minio.storage:9000"
    assert resources["NetworkPolicy", "speech"]["spec"]["egress"][-1]["ports"] == [{"port": 9000}]
    assert "voices" not in {one["name"] for one in pod(BUCKET)["volumes"]}
    assert not [name for kind, name in resources if kind == "PersistentVolumeClaim"]


@pytest.mark.parametrize(
    ("values", "mode", "strategy"),
    [
        ({}, "ReadWriteOnce", "Recreate"),
        ({"replicas": 2}, "ReadWriteMany", "RollingUpdate"),
        ({"autoscaling": {"kind": "hpa"}}, "ReadWriteMany", "RollingUpdate"),
        ({"voices": {"accessModes": ["ReadWriteMany"]}}, "ReadWriteMany", "RollingUpdate"),
    ],
)
def test_a_rollout_waits_for_no_claim_that_another_pod_holds(values, mode, strategy) -> None:
    """The usual class of most clusters has no ReadWriteMany; two pods cannot hold ReadWriteOnce."""
    resources = rendered(values)
    claim = resources["PersistentVolumeClaim", "speech-voices"]["spec"]
    assert claim["accessModes"] == [mode]
    assert resources["Deployment", "speech"]["spec"]["strategy"]["type"] == strategy


@pytest.mark.parametrize(
    "values",
    [{"ingress": {"enabled": True, "host": "a.example"}}, {"serviceMonitor": {"enabled": True}}],
)
def test_who_asks_from_another_namespace_must_be_named(values) -> None:
    with pytest.raises(helm.HelmError, match=r"networkPolicy\.from"):
        rendered(values)
    policy: dict[str, Any] = {"from": [{"namespaceSelector": {}}]}
    spec = rendered(values | {"networkPolicy": policy})["NetworkPolicy", "speech"]["spec"]
    assert spec["ingress"][0]["from"] == policy["from"]
    assert ("NetworkPolicy", "speech") not in rendered(
        values | {"networkPolicy": {"enabled": False}}
    )


def test_the_table_of_the_page_names_values_that_are_there() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    page = (ROOT / "docs" / "replicas.md").read_text("utf-8")
    rows = page.partition("| value | default |")[2].partition("\n\n")[0].splitlines()[2:]
    named = [name for row in rows for name in re.findall(r"`([\w.]+)`", row.split("|")[1])]
    assert len(named) > 10
    for name in named:
        found: Any = values
        for part in name.split("."):
            assert part in found, name
            found = found[part]


def test_any_uid_runs_it() -> None:
    allowed = pod({})["securityContext"]
    assert allowed["fsGroup"] == 0  # the image's folders belong to it
    assert "runAsUser" not in allowed | container_of({})["securityContext"]


def test_a_card_is_asked_for_unless_there_is_none() -> None:
    for gpus in (0, 1, 2):
        asked = container_of({"gpus": gpus})["resources"]["limits"].get("nvidia.com/gpu")
        assert asked == (gpus or None)
        assert (variables({"gpus": gpus}).get("TTS_DEVICE") == "cpu") == (gpus == 0)


def test_everything_selects_the_pods_of_the_service() -> None:
    resources = rendered(EVERYTHING)
    labels = resources["Deployment", "speech"]["spec"]["template"]["metadata"]["labels"]
    selectors = [
        resources["Deployment", "speech"]["spec"]["selector"]["matchLabels"],
        resources["Service", "speech"]["spec"]["selector"],
        resources["PodDisruptionBudget", "speech"]["spec"]["selector"]["matchLabels"],
        resources["NetworkPolicy", "speech"]["spec"]["podSelector"]["matchLabels"],
        resources["ServiceMonitor", "speech"]["spec"]["selector"]["matchLabels"],
    ]
    redis = resources["Deployment", "speech-redis"]["spec"]["template"]["metadata"]["labels"]
    for selector in selectors:
        assert selector.items() <= labels.items()
        assert not selector.items() <= redis.items()
    scaled = resources["HorizontalPodAutoscaler", "speech"]["spec"]["scaleTargetRef"]
    assert scaled["name"] == "speech"


def test_scaling_asks_for_metrics_that_exist() -> None:
    trigger = rendered({"autoscaling": {"kind": "keda"}})["ScaledObject", "speech"]["spec"]
    (metadata,) = (one["metadata"] for one in trigger["triggers"])
    source = (ROOT / "app" / "engine" / "serving" / "metrics.py").read_text()
    for name in ("tts_slots", "tts_queued_jobs"):
        assert name in metadata["query"]
        assert f'"{name}"' in source
    assert float(metadata["threshold"]) == 0.7 * Settings().slots


def test_the_schema_names_every_value() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert set(schema["properties"]) - {"global"} == set(values)
