"""A server of S3's protocol on a free port that checks keys, to be killed and started again."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.app.tools.serving import free_port, until

_POLICY = (
    '{"Version": "2012-10-17",'
    ' "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}'
)


def client(service: str) -> Any:
    """Return a client with the credentials of now; `boto3.client` keeps the first."""
    return pytest.importorskip("boto3").Session().client(service)


class S3Server:
    """Moto's server in a process; what it stores ends with it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._set = monkeypatch.setenv
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._set("AWS_ENDPOINT_URL", self.url)
        self._set("AWS_DEFAULT_REGION", "us-east-1")

    def start(self) -> None:
        """Start it, with a user whose keys are in the environment, and an empty bucket."""
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)]
        # So many requests are answered without keys: those that make the user.
        environment = os.environ | {"INITIAL_NO_AUTH_ACTION_COUNT": "3"}
        self._process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
        until(self._listens)
        self.sign_in("nobody", "nothing")
        iam = client("iam")
        iam.create_user(UserName="voices")
        key = iam.create_access_key(UserName="voices")["AccessKey"]
        iam.put_user_policy(UserName="voices", PolicyName="s3", PolicyDocument=_POLICY)
        self.sign_in(key["AccessKeyId"], key["SecretAccessKey"])
        client("s3").create_bucket(Bucket="bucket")

    def sign_in(self, key: str, secret: str) -> None:
        """Set the credentials of stores that are opened from now on."""
        self._set("AWS_ACCESS_KEY_ID", key)
        self._set("AWS_SECRET_ACCESS_KEY", secret)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def _listens(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True


@contextmanager
def s3_running(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """Run one until the end of the block; skip the test where its packages are not installed."""
    for package in ("boto3", "moto", "flask_cors"):
        pytest.importorskip(package)
    server = S3Server(monkeypatch)
    try:
        server.start()
        yield server
    finally:
        server.kill()
