"""Arrays of a result, and how pydantic writes them. Loads without torch."""

from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import GetCoreSchemaHandler, ValidationInfo
from pydantic_core import CoreSchema, core_schema


class StoredArray:
    """How pydantic writes an array: into the list in the context, and its place there as JSON."""

    @classmethod
    def __get_pydantic_core_schema__(cls, _: Any, __: GetCoreSchemaHandler) -> CoreSchema:
        """Return the schema of an array of any shape."""
        return core_schema.with_info_plain_validator_function(
            cls._read,
            serialization=core_schema.plain_serializer_function_ser_schema(cls._add, info_arg=True),
        )

    @staticmethod
    def _read(place: int, info: "ValidationInfo[list[NDArray[Any]]]") -> NDArray[Any]:
        return info.context[place]

    @staticmethod
    def _add(array: NDArray[Any], info: "core_schema.SerializationInfo[list[NDArray[Any]]]") -> int:
        info.context.append(array)
        return len(info.context) - 1


Array = Annotated[NDArray[Any], StoredArray]


Samples = NDArray[np.float32]
"""``[N]`` in [-1, 1], mono."""


Codes = Annotated[NDArray[np.int16], StoredArray]
"""``[T, K]``."""


TraceColumns = Mapping[str, Array]
"""Each of `samplers.ar.trace.FIELDS` -> ``[N, ...]``, one entry a token sampled."""
