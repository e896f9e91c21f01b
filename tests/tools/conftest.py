from tests.app.commands.conftest import toy_in_process
from tests.app.conftest import toy_server

__all__ = ["toy_in_process", "toy_server"]
