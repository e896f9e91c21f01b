"""The service as an application of Ray Serve.

    serve run deploy.ray.deployment:build replicas=2 gpus=1

Settings are the `TTS_*` variables of the shell that runs this, as for `valle-serve serve`.
"""

import math
import os
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel, ConfigDict, Field, model_validator
from ray import serve
from ray.serve.config import (
    AutoscalingConfig,
    AutoscalingContext,
    AutoscalingPolicy,
    RequestRouterConfig,
)
from starlette.types import ASGIApp

from app.imports import gc_paused
from app.settings import Settings

if TYPE_CHECKING:
    from app.engine.engine import SpeechEngine

_LEAST: Final = "deploy.ray.router:LeastRequestsRouter"
_AFFINE: Final = "ray.serve.experimental.consistent_hash_router:ConsistentHashRouter"
_PASSED: Final = ("TTS_", "HF_", "AWS_", "CUDA_", "NUMBA_")


class Cluster(BaseModel):
    """How many replicas, and on what: the arguments of `serve run`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    replicas: int = Field(1, ge=1, description="Least number.")
    max_replicas: int = Field(0, ge=0, description="Greatest number; 0 is no autoscaling.")
    gpus: float = Field(0.0, ge=0, description="Of one replica.")
    cpus: float = Field(1.0, ge=0, description="Of one replica.")
    busy: float = Field(0.7, gt=0, le=1, description="Part of the slots in use to aim at.")
    upscale_delay_s: float = Field(5.0, ge=0, description="Seconds of load before more start.")
    downscale_delay_s: float = Field(300.0, ge=0, description="Seconds of idling before one ends.")
    affinity: bool = Field(
        False, description="Send requests with the same header x-session-id to the same replica."
    )
    version: str = Field("1", description="Of the service; a change rolls all replicas.")
    factory: str = Field(
        "app.main:create_app", description="Import path, module:function, of the application."
    )

    @model_validator(mode="after")
    def _numbers_agree(self) -> "Cluster":
        if self.max_replicas and self.max_replicas < self.replicas:
            raise ValueError("max_replicas is less than replicas")
        return self

    @property
    def number(self) -> dict[str, Any]:
        """Ray's options for the number of replicas."""
        if not self.max_replicas:
            return {"num_replicas": self.replicas}
        scaling = AutoscalingConfig(
            min_replicas=self.replicas,
            max_replicas=self.max_replicas,
            upscale_delay_s=self.upscale_delay_s,
            downscale_delay_s=self.downscale_delay_s,
            look_back_period_s=10.0,
            policy=AutoscalingPolicy(policy_function=LoadPolicy, policy_kwargs={"busy": self.busy}),
        )
        return {"autoscaling_config": scaling}


@serve.ingress()  # no application yet: each replica makes its own
class Replica:
    """One process with one engine, on one GPU."""

    def __init__(self, version: str, factory: str) -> None:
        self._version, self._factory = version, factory
        self._engine: SpeechEngine

    def __serve_build_asgi_app__(self) -> ASGIApp:
        """Return the application; Ray calls it once, in the process of the replica."""
        module, _, name = self._factory.partition(":")
        with gc_paused():  # Ray's controller imports this module, and needs no torch
            from app import logs
            from deploy.ray.flow import BoundedSend
            from deploy.ray.metrics import export

            create_app = getattr(import_module(module), name)
        settings = Settings()
        logs.configure(settings.log_level, settings.log_format)
        app = create_app(settings)
        services = app.state.services
        self._engine = services.engine
        app.add_middleware(BoundedSend)
        export(self._engine.metrics.registry, services.http_metrics.registry)
        made: ASGIApp = app
        return made

    async def check_health(self) -> None:
        """Return when the replica can speak."""
        self._engine.check_healthy()
        await self._engine.lifecycle.wait_ready()

    def record_autoscaling_stats(self) -> dict[str, float]:
        """Return the rows in use and the requests that wait, as a part of the rows."""
        status = self._engine.status
        return {"load": (status.used_slots + status.queued) / status.slots}


class LoadPolicy:
    """As many replicas as the engines' load asks for."""

    def __init__(self, busy: float = 0.7) -> None:
        self._busy = busy

    def __call__(self, context: AutoscalingContext) -> tuple[int, dict[str, Any]]:
        """Return the number of replicas."""
        loads = (context.aggregated_metrics or {}).get("load", {})
        wanted = wanted_replicas(list(loads.values()), self._busy) or context.target_num_replicas
        least = context.capacity_adjusted_min_replicas
        return min(max(wanted, least), context.capacity_adjusted_max_replicas), {}


def wanted_replicas(loads: list[float], busy: float) -> int:
    """Return how many replicas make a load of each that is at most ``busy``; 0 if none is known."""
    return max(1, math.ceil(round(sum(loads) / busy, 6))) if loads else 0


def build(cluster: Cluster) -> serve.Application:
    """Return the application that Ray runs.

    Raises RuntimeError if Ray's HAProxy is its ingress, which makes broken answers look whole.
    """
    if os.environ.get("RAY_SERVE_ENABLE_HA_PROXY", "0") == "1":
        raise RuntimeError(
            "RAY_SERVE_ENABLE_HA_PROXY is set: with that ingress of Ray an answer whose replica"
            " died ends as if it were whole. Unset it"
        )
    settings = Settings()
    passed = {name: value for name, value in os.environ.items() if name.startswith(_PASSED)}
    router = _AFFINE if cluster.affinity else _LEAST
    return serve.deployment(
        Replica,
        name="valle",
        max_surge_percent=50,
        request_router_config=RequestRouterConfig(request_router_class=router),
        # An engine itself refuses what is too much, with a Retry-After that knows its queue.
        max_ongoing_requests=settings.slots + settings.max_queue + settings.max_sessions,
        max_queued_requests=settings.max_queue,
        # A running response ends by itself, an idle WebSocket too.
        graceful_shutdown_timeout_s=settings.request_timeout_s + settings.idle_timeout_s,
        graceful_shutdown_wait_loop_s=0.5,
        health_check_period_s=1.0,
        health_check_timeout_s=30.0,
        ray_actor_options={
            "num_cpus": cluster.cpus,
            "num_gpus": cluster.gpus,
            "runtime_env": {"env_vars": passed | {"OMP_NUM_THREADS": str(settings.threads)}},
        },
        **cluster.number,
    ).bind(cluster.version, cluster.factory)
