from tests.app.commands.conftest import toy_in_process
from tests.app.conftest import redis_server, toy_server

__all__ = ["redis_server", "toy_in_process", "toy_server"]
