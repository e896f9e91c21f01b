"""Metrics of the engine for Prometheus, in one registry a process."""

_LATENCIES_S = (0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.45, 0.6, 1.0, 2.0, 5.0, 15.0, 60.0)
_FACTORS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 1.5, 2.0, 4.0)


class EngineMetrics:
    """Counters, gauges and histograms of one engine; any thread may update them."""

    def __init__(self) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

        self.registry = registry = CollectorRegistry()
        self.jobs = Counter("tts_jobs", "Jobs that ended.", ["reason"], registry=registry)
        self.queued = Gauge("tts_queued_jobs", "Jobs that wait.", registry=registry)
        self.running = Gauge("tts_running_jobs", "Jobs being spoken.", registry=registry)
        self.slots = Gauge("tts_slots", "Rows of the level-0 cache.", ["state"], registry=registry)
        self.steps = Counter("tts_steps", "Steps of the level-0 loop.", registry=registry)
        self.tokens = Counter("tts_tokens", "Frames of level 0 drawn.", registry=registry)
        self.backtracks = Counter(
            "tts_backtracks", "Times that frames were removed by backtracking.", registry=registry
        )
        self.stage_s = Counter(
            "tts_stage_seconds", "Seconds of work, by stage.", ["stage"], registry=registry
        )
        self.queue_s = Histogram(
            "tts_queue_seconds",
            "Seconds from submission to the first step.",
            buckets=_LATENCIES_S,
            registry=registry,
        )
        self.first_audio_s = Histogram(
            "tts_first_audio_seconds",
            "Seconds from submission to the first audio.",
            buckets=_LATENCIES_S,
            registry=registry,
        )
        self.real_time_factor = Histogram(
            "tts_real_time_factor",
            "Seconds of work a second of audio.",
            buckets=_FACTORS,
            registry=registry,
        )
        self.audio_s = Counter("tts_audio_seconds", "Seconds of audio made.", registry=registry)
        self.underrun_s = Counter(
            "tts_underrun_seconds", "Seconds that playbacks stalled.", registry=registry
        )
        self.continuous = Counter(
            "tts_continuous_jobs",
            "Jobs whose playback never stalled, or did.",
            ["ok"],
            registry=registry,
        )
        self.cache_bytes = Gauge(
            "tts_kv_bytes",
            "Bytes of keys and values, by what they are of.",
            ["of"],
            registry=registry,
        )
        self.restarts = Counter(
            "tts_worker_restarts", "Workers restarted after a crash.", registry=registry
        )
