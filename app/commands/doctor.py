"""`valle-serve doctor`: whether this machine can speak, and what to do if not."""

from app.commands.checks import device, host, speech
from app.commands.errors import CommandFailed, Doubt
from app.settings import Settings

_CHECKS = {
    "python": host.check_python,
    "device": device.check_device,
    "espeak": host.check_espeak,
    "model": host.check_model,
    "golden": speech.check_golden,
    "streams": speech.check_streams,
    "formats": host.check_formats,
    "presets": host.check_presets,
    "keys": host.check_keys,
    "cache": host.check_cache,
    "voices": host.check_voices,
    "port": host.check_port,
}


class Doctor(Settings):
    """Check that this machine can speak, and say what to do if not.

    A line a check: `ok`; `warn`, for what works but not as well as it could; `FAIL`, for what stops
    the service.
    """

    def cli_cmd(self) -> None:
        """Print one line a check.

        Raises:
            CommandFailed: A check failed.
        """
        failed = 0
        for name, check in _CHECKS.items():
            try:
                print(f"ok    {name}: {check(self)}", flush=True)
            except Doubt as doubt:
                print(f"warn  {name}: {doubt}", flush=True)
            except Exception as error:
                failed += 1
                print(f"FAIL  {name}: {error or type(error).__name__}", flush=True)
        if failed:
            raise CommandFailed(f"doctor: {failed} of {len(_CHECKS)} checks failed")
