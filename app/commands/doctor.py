"""`valle-serve doctor`: check this machine, and say how to fix what fails."""

from collections.abc import Sequence
from typing import ClassVar

from app.commands.checks import device, host, speech
from app.commands.errors import CheckWarning, CommandFailed
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
    "state": host.check_state,
    "cache": host.check_cache,
    "voices": host.check_voices,
    "port": host.check_port_or_service,
}


class Doctor(Settings):
    """Check that this machine can run the service, and say how to fix what fails.

    One line per check: `ok`; `warn` for what works but not well; `FAIL` for what stops the service.
    """

    shown: ClassVar[Sequence[str]] = (
        *("host", "port", "model", "device", "weights", "decoder", "threads", "cache", "offline"),
        *("voices", "presets", "pronunciations", "api_keys_file", "state", "fused_kernels"),
    )

    def cli_cmd(self) -> None:
        """Run all checks and print one line for each."""
        failed = 0
        for name, check in _CHECKS.items():
            try:
                print(f"ok    {name}: {check(self)}", flush=True)
            except CheckWarning as warning:
                print(f"warn  {name}: {warning}", flush=True)
            except Exception as error:
                failed += 1
                print(f"FAIL  {name}: {error or type(error).__name__}", flush=True)
        if failed:
            raise CommandFailed(f"doctor: {failed} of {len(_CHECKS)} checks failed")
