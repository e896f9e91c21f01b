from tests.app.conftest import toy_server

__all__ = ["toy_server"]
