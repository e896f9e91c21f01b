"""What Ray is told; what Ray does with it is in tests/app/cluster/test_cluster.py."""

import subprocess
import sys

import pytest
from pydantic import ValidationError

pytest.importorskip("ray", reason="needs the package ray")
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def deployment():
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from app.cluster import deployment
    return deployment


@pytest.mark.parametrize(
    ("loads", "wanted"),
    [([], 0), ([0.0], 1), ([0.7], 1), ([0.7] * 4, 4), ([1.5, 1.5], 5), ([0.1] * 4, 1)],
)
def test_so_many_replicas_that_each_is_as_busy_as_asked(deployment, loads, wanted) -> None:
    assert deployment.wanted_replicas(loads, 0.7) == wanted


def test_a_policy_stays_within_its_bounds(deployment) -> None:
    class Context:
        target_num_replicas = 3
        capacity_adjusted_min_replicas = 2
        capacity_adjusted_max_replicas = 4
        aggregated_metrics: dict[str, dict[str, float]]

    policy = deployment.LoadPolicy(0.5)
    for loads, number in (({}, 3), ({"a": 0.0, "b": 0.0}, 2), ({"a": 9.0, "b": 9.0}, 4)):
        Context.aggregated_metrics = {"load": loads}
        assert policy(Context())[0] == number


def test_the_ingress_that_makes_broken_answers_look_whole_is_refused(
    deployment, monkeypatch
) -> None:
    monkeypatch.setattr(deployment, "RAY_SERVE_ENABLE_HA_PROXY", True)
    with pytest.raises(RuntimeError, match="as if it were whole"):
        deployment.build(deployment.Cluster())


def test_an_application_has_what_was_asked(deployment, monkeypatch) -> None:
    monkeypatch.setenv("TTS_SLOTS", "7")
    asked = deployment.Cluster(replicas=2, max_replicas=8, gpus=1, affinity=True)
    built = deployment.build(asked)._bound_deployment
    options = built.ray_actor_options
    assert (options["num_gpus"], options["num_cpus"]) == (1, 1)
    assert options["runtime_env"]["env_vars"]["TTS_SLOTS"] == "7"
    assert built.max_ongoing_requests == 7 + 16 + 64
    config = built._deployment_config
    assert config.graceful_shutdown_timeout_s >= 300
    scaling = config.autoscaling_config
    assert (scaling.min_replicas, scaling.max_replicas) == (2, 8)
    assert "ConsistentHash" in config.request_router_config.request_router_class


@pytest.mark.parametrize("wrong", [{"replicas": 0}, {"replicas": 3, "max_replicas": 2}, {"a": 1}])
def test_what_cannot_be_is_refused(deployment, wrong) -> None:
    with pytest.raises(ValidationError):
        deployment.Cluster(**wrong)


def test_the_proxy_loads_neither_torch_nor_the_service() -> None:
    code = (
        "import sys, app.cluster.proxy as proxy; assert len(proxy.middlewares()) == 3;"
        "assert not {'torch', 'app.main', 'app.engine'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
