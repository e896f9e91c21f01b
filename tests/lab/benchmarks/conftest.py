from tests.app.conftest import anyio_backend, toy_server

__all__ = ["anyio_backend", "toy_server"]
