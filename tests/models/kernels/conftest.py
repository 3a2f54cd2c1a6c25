"""Triton's interpreter, mended for NumPy 2.4: it makes numbers of arrays of one value, which must have no dimension."""

import os

if os.environ.get("TRITON_INTERPRET") == "1":
    try:
        from triton.runtime import interpreter
    except ImportError:  # its tests skip, and say so
        pass
    else:
        patch_tensor = interpreter._patch_lang_tensor

        def _patch_tensor(tensor, scope):
            patch_tensor(tensor, scope)
            scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

        interpreter._patch_lang_tensor = _patch_tensor
