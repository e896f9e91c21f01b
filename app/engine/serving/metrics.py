"""Metrics of the engine for Prometheus, in one registry a process."""

from functools import partial

_LATENCIES_S = (0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.45, 0.6, 1.0, 2.0, 5.0, 15.0, 60.0)
_FACTORS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 1.5, 2.0, 4.0)


class EngineMetrics:
    """Counters, gauges and histograms of one engine; any thread may update them."""

    def __init__(self) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

        self.registry = CollectorRegistry()
        counter = partial(Counter, registry=self.registry)
        gauge = partial(Gauge, registry=self.registry)
        latency = partial(Histogram, buckets=_LATENCIES_S, registry=self.registry)
        factor = partial(Histogram, buckets=_FACTORS, registry=self.registry)
        self.jobs = counter("tts_jobs", "Jobs that ended.", ["reason"])
        self.queued = gauge("tts_queued_jobs", "Jobs that wait.")
        self.running = gauge("tts_running_jobs", "Jobs being spoken.")
        self.slots = gauge("tts_slots", "Rows of the level-0 cache.", ["state"])
        self.steps = counter("tts_steps", "Steps of the level-0 loop.")
        self.tokens = counter("tts_tokens", "Frames of level 0 drawn.")
        self.backtracks = counter(
            "tts_backtracks", "Times that frames were removed by backtracking."
        )
        self.stage_s = counter("tts_stage_seconds", "Seconds of work, by stage.", ["stage"])
        self.queue_s = latency("tts_queue_seconds", "Seconds from submission to the first step.")
        self.first_audio_s = latency(
            "tts_first_audio_seconds", "Seconds from submission to the first audio."
        )
        self.real_time_factor = factor("tts_real_time_factor", "Seconds of work a second of audio.")
        self.audio_s = counter("tts_audio_seconds", "Seconds of audio made.")
        self.underrun_s = counter("tts_underrun_seconds", "Seconds that playbacks stalled.")
        self.continuous = counter(
            "tts_continuous_jobs", "Jobs whose playback never stalled, or did.", ["ok"]
        )
        self.cache_bytes = gauge(
            "tts_kv_bytes", "Bytes of keys and values, by what they are of.", ["of"]
        )
        self.restarts = counter("tts_worker_restarts", "Workers restarted after a crash.")
