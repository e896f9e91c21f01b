"""The OpenAPI document itself, which clients are made from."""

from collections.abc import Iterator
from typing import Any

from app.main import create_app
from app.settings import Settings


def references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(reference := node.get("$ref"), str):
            yield reference
        for inner in node.values():
            yield from references(inner)
    elif isinstance(node, list):
        for inner in node:
            yield from references(inner)


def test_every_reference_of_the_document_leads_somewhere():
    document = create_app(Settings()).openapi()
    found = set(references(document))
    assert found
    for reference in found:
        place, *path = reference.split("/")
        assert place == "#", reference
        node = document
        for name in path:
            assert name in node, reference
            node = node[name]
