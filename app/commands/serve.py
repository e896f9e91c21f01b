"""`valle-serve serve`: speech over HTTP until interrupted."""

import logging
import math

from app.settings import Settings


class Serve(Settings):
    """Serve speech over HTTP."""

    def cli_cmd(self) -> None:
        """Serve until interrupted."""
        import uvicorn

        from app.main import create_app

        logging.basicConfig(
            level=self.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
        )
        uvicorn.run(
            create_app(self),
            host=self.host,
            port=self.port,
            log_level=self.log_level,
            server_header=False,
            ws_max_size=self.max_body_bytes,
            timeout_graceful_shutdown=math.ceil(self.drain_timeout_s),
        )
