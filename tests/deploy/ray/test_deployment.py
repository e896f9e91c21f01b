"""What Ray is told; what Ray does with it is in tests/deploy/ray/test_cluster.py."""

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
        from deploy.ray import deployment
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
    monkeypatch.setenv("RAY_SERVE_ENABLE_HA_PROXY", "1")
    with pytest.raises(RuntimeError, match="as if it were whole"):
        deployment.build(deployment.Cluster())


def test_arguments_become_options_of_ray(deployment) -> None:
    asked = deployment.Cluster(replicas=2, max_replicas=8, busy=0.5, upscale_delay_s=3)
    scaling = asked.number["autoscaling_config"]
    assert (scaling.min_replicas, scaling.max_replicas, scaling.upscale_delay_s) == (2, 8, 3)
    assert deployment.Cluster(replicas=3).number == {"num_replicas": 3}
    deployment.build(deployment.Cluster(gpus=1, affinity=True))


@pytest.mark.parametrize("wrong", [{"replicas": 0}, {"replicas": 3, "max_replicas": 2}, {"a": 1}])
def test_what_cannot_be_is_refused(deployment, wrong) -> None:
    with pytest.raises(ValidationError):
        deployment.Cluster(**wrong)


def test_the_proxy_loads_neither_torch_nor_the_service() -> None:
    code = (
        "import sys, deploy.ray.proxy as proxy; assert len(proxy.middlewares()) == 3;"
        "assert not {'torch', 'app.main', 'app.engine'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
