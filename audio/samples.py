"""The type of decoded audio, from the decoder to the model."""

import numpy as np
from numpy.typing import NDArray

# Full scale is 1: mono [frames], or several channels [frames, channels].
Samples = NDArray[np.float32]
