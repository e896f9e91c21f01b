"""Type aliases of numpy arrays by dtype; the arrays share their memory with torch tensors."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Int8s = NDArray[np.int8]
Uint8s = NDArray[np.uint8]
Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]
Bools = NDArray[np.bool_]
